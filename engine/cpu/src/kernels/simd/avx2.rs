//! AVX2 with FMA and F16C: 16 lanes are two registers of 8.

use std::arch::x86_64::*;

use super::{LANES, Simd};

/// Exists only where the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

macro_rules! instructions {
    ($($body:tt)*) => {
        // SAFETY: the token proves that the processor has these instructions; every pointer comes from a reference to
        // an array that is exactly as long as both halves together, and no instruction needs alignment.
        unsafe { $($body)* }
    };
}

/// The same for both halves, in place of a closure: only macros are certain to take on the caller's instructions.
macro_rules! halves {
    ($half:ident in ($low:expr, $high:expr) => $body:expr) => {
        instructions!((
            {
                let $half = $low;
                $body
            },
            {
                let $half = $high;
                $body
            }
        ))
    };
}

macro_rules! half_pairs {
    ($instruction:ident, $a:ident, $b:ident) => {
        instructions!(($instruction($a.0, $b.0), $instruction($a.1, $b.1)))
    };
}

impl Simd for Avx2 {
    type Floats = (__m256, __m256);
    type Ints = (__m256i, __m256i);
    type Bytes = (__m256i, __m256i);

    const ROWS: usize = 4;
    const SUMS: usize = 4;

    const SIGNED_ZERO: i32 = 0;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Floats {
        instructions!((_mm256_set1_ps(value), _mm256_set1_ps(value)))
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::Floats {
        instructions!((_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))))
    }
    #[inline(always)]
    fn store(self, values: Self::Floats, to: &mut [f32; LANES]) {
        instructions!({
            _mm256_storeu_ps(to.as_mut_ptr(), values.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), values.1);
        })
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::Floats {
        halves!(at in (0, 8) => _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().add(at).cast())))
    }
    #[inline(always)]
    fn load_bf16_pairs(self, from: &[u16; 2 * LANES]) -> (Self::Floats, Self::Floats) {
        let (low, high) = halves!(at in (0, 16) => {
            let pairs = _mm256_loadu_si256(from.as_ptr().add(at).cast());
            let second = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            (_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(second))
        });
        ((low.0, high.0), (low.1, high.1))
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::Floats {
        halves!(at in (0, 8) => {
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().add(at).cast())))
        })
    }
    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::Floats {
        halves!(at in (0, 8) => {
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().add(at).cast())))
        })
    }
    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        half_pairs!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        half_pairs!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        half_pairs!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        half_pairs!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        instructions!((_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)))
    }
    #[inline(always)]
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        half_pairs!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        half_pairs!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn round(self, a: Self::Floats) -> Self::Floats {
        halves!(half in (a.0, a.1) => _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(half))
    }
    #[inline(always)]
    fn power_of_two(self, a: Self::Floats) -> Self::Floats {
        halves!(half in (a.0, a.1) => {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(half), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        })
    }
    #[inline(always)]
    fn sum(self, a: Self::Floats) -> f32 {
        instructions!({
            let eight = _mm256_add_ps(a.0, a.1);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest(self, a: Self::Floats) -> f32 {
        instructions!({
            let eight = _mm256_max_ps(a.0, a.1);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest_magnitude_bits(self, a: Self::Floats, b: Self::Floats) -> u32 {
        let halves = halves!(half in (a, b) => {
            let mask = _mm256_set1_epi32(0x7fff_ffff);
            let low = _mm256_and_si256(_mm256_castps_si256(half.0), mask);
            _mm256_max_epu32(low, _mm256_and_si256(_mm256_castps_si256(half.1), mask))
        });
        instructions!({
            let eight = _mm256_max_epu32(halves.0, halves.1);
            let four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            _mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))) as u32
        })
    }
    #[inline(always)]
    fn store_i8(self, values: Self::Floats, to: &mut [i8; LANES]) {
        instructions!({
            let pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(values.0), _mm256_cvtps_epi32(values.1));
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs);
            let low = _mm256_castsi256_si128(ordered);
            let bytes = _mm_packs_epi16(low, _mm256_extracti128_si256::<1>(ordered));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes)
        })
    }
    #[inline(always)]
    fn prefetch<T>(self, from: &T) {
        instructions!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()))
    }
    #[inline(always)]
    fn bytes(self, from: &[u8; 64]) -> Self::Bytes {
        halves!(at in (0, 32) => _mm256_loadu_si256(from.as_ptr().add(at).cast()))
    }
    #[inline(always)]
    fn and(self, a: Self::Bytes, mask: u8) -> Self::Bytes {
        halves!(half in (a.0, a.1) => _mm256_and_si256(half, _mm256_set1_epi8(mask as i8)))
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        half_pairs!(_mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn shift_left<const N: i32>(self, a: Self::Bytes) -> Self::Bytes {
        halves!(half in (a.0, a.1) => _mm256_slli_epi16::<N>(half))
    }
    #[inline(always)]
    fn shift_right<const N: i32>(self, a: Self::Bytes) -> Self::Bytes {
        halves!(half in (a.0, a.1) => _mm256_srli_epi16::<N>(half))
    }
    #[inline(always)]
    fn unsigned_byte<const N: i32>(self, a: Self::Bytes) -> Self::Floats {
        halves!(half in (a.0, a.1) => {
            let low = _mm256_srl_epi32(half, _mm_cvtsi32_si128(8 * N));
            _mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32(0xff)))
        })
    }
    #[inline(always)]
    fn signed_byte<const N: i32>(self, a: Self::Bytes) -> Self::Floats {
        halves!(half in (a.0, a.1) => {
            let high = _mm256_sll_epi32(half, _mm_cvtsi32_si128(24 - 8 * N));
            _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(high))
        })
    }
    #[inline(always)]
    fn dot_unsigned<const BITS: u32, const N: usize>(self, codes: &[Self::Bytes; N], words: &[i32; N]) -> Self::Ints {
        // How many sums of two products, of 127 by the largest code, stay below 2^15.
        let most = const {
            assert!(BITS >= 4 && BITS <= 6, "codes of 4 to 6 bits");
            1 << (7 - BITS)
        };
        let mut sums = halves!(_half in (0, 0) => _mm256_setzero_si256());
        let mut part = sums;
        for at in 0..N {
            let word = instructions!(_mm256_set1_epi32(words[at]));
            part = halves!(half in ((part.0, codes[at].0), (part.1, codes[at].1)) => {
                _mm256_add_epi16(half.0, _mm256_maddubs_epi16(half.1, word))
            });
            if (at + 1) % most == 0 || at + 1 == N {
                sums = halves!(half in ((sums.0, part.0), (sums.1, part.1)) => {
                    _mm256_add_epi32(half.0, _mm256_madd_epi16(half.1, _mm256_set1_epi16(1)))
                });
                part = halves!(_half in (0, 0) => _mm256_setzero_si256());
            }
        }
        sums
    }
    #[inline(always)]
    fn dot_signed<const N: usize>(self, codes: &[Self::Bytes; N], words: &[i32; N]) -> Self::Ints {
        let mut sums = halves!(_half in (0, 0) => _mm256_setzero_si256());
        for at in 0..N {
            let word = instructions!(_mm256_set1_epi32(words[at]));
            // Magnitudes of the codes by activations that take on the codes' signs.
            sums = halves!(half in ((sums.0, codes[at].0), (sums.1, codes[at].1)) => {
                let part = _mm256_maddubs_epi16(_mm256_abs_epi8(half.1), _mm256_sign_epi8(word, half.1));
                _mm256_add_epi32(half.0, _mm256_madd_epi16(part, _mm256_set1_epi16(1)))
            });
        }
        sums
    }
    #[inline(always)]
    fn floats(self, a: Self::Ints) -> Self::Floats {
        instructions!((_mm256_cvtepi32_ps(a.0), _mm256_cvtepi32_ps(a.1)))
    }
}
