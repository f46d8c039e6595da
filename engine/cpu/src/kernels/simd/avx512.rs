//! AVX-512 (F, BW, DQ, VL) with VNNI.

use std::arch::x86_64::*;

use super::{LANES, Simd};

/// Exists only where the processor has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX-512 F, BW, DQ, VL and VNNI.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

macro_rules! instructions {
    ($($body:tt)*) => {
        // SAFETY: the token proves that the processor has these instructions; every pointer comes from a reference to
        // an array of exactly the size that is read or written, by instructions that need no alignment.
        unsafe { $($body)* }
    };
}

impl Simd for Avx512 {
    type Floats = __m512;
    type Ints = __m512i;
    type Bytes = __m512i;

    const ROWS: usize = 8;
    const SUMS: usize = 16;

    /// The dot product takes unsigned codes: signed ones are moved up by 128.
    const SIGNED_ZERO: i32 = 128;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        instructions!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        instructions!(_mm512_loadu_ps(from.as_ptr()))
    }
    #[inline(always)]
    fn store(self, values: __m512, to: &mut [f32; LANES]) {
        instructions!(_mm512_storeu_ps(to.as_mut_ptr(), values))
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> __m512 {
        instructions!(_mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_bf16_pairs(self, from: &[u16; 2 * LANES]) -> (__m512, __m512) {
        instructions!({
            let pairs = _mm512_loadu_si512(from.as_ptr().cast());
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second))
        })
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> __m512 {
        instructions!(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()))))
    }
    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> __m512 {
        instructions!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))))
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        instructions!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        instructions!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        instructions!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        instructions!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        instructions!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        instructions!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        instructions!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        instructions!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn power_of_two(self, a: __m512) -> __m512 {
        instructions!({
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        })
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        instructions!({
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest(self, a: __m512) -> f32 {
        instructions!(_mm512_reduce_max_ps(a))
    }
    #[inline(always)]
    fn largest_magnitude_bits(self, a: __m512, b: __m512) -> u32 {
        instructions!({
            let mask = _mm512_set1_epi32(0x7fff_ffff);
            let a = _mm512_and_si512(_mm512_castps_si512(a), mask);
            let b = _mm512_and_si512(_mm512_castps_si512(b), mask);
            _mm512_reduce_max_epu32(_mm512_max_epu32(a, b))
        })
    }
    #[inline(always)]
    fn store_i8(self, values: __m512, to: &mut [i8; LANES]) {
        instructions!({
            let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes)
        })
    }
    #[inline(always)]
    fn prefetch<T>(self, from: &T) {
        instructions!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()))
    }
    #[inline(always)]
    fn bytes(self, from: &[u8; 64]) -> __m512i {
        instructions!(_mm512_loadu_si512(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn and(self, a: __m512i, mask: u8) -> __m512i {
        instructions!(_mm512_and_si512(a, _mm512_set1_epi8(mask as i8)))
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        instructions!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn shift_left<const N: i32>(self, a: __m512i) -> __m512i {
        instructions!(_mm512_sll_epi16(a, _mm_cvtsi32_si128(N)))
    }
    #[inline(always)]
    fn shift_right<const N: i32>(self, a: __m512i) -> __m512i {
        instructions!(_mm512_srl_epi16(a, _mm_cvtsi32_si128(N)))
    }
    #[inline(always)]
    fn unsigned_byte<const N: i32>(self, a: __m512i) -> __m512 {
        instructions!({
            let low = _mm512_srl_epi32(a, _mm_cvtsi32_si128(8 * N));
            _mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32(0xff)))
        })
    }
    #[inline(always)]
    fn signed_byte<const N: i32>(self, a: __m512i) -> __m512 {
        instructions!({
            let high = _mm512_sll_epi32(a, _mm_cvtsi32_si128(24 - 8 * N));
            _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(high))
        })
    }
    #[inline(always)]
    fn dot_unsigned<const BITS: u32, const N: usize>(self, codes: &[__m512i; N], words: &[i32; N]) -> __m512i {
        instructions!({
            let mut sums = _mm512_setzero_si512();
            for (code, word) in codes.iter().zip(words) {
                sums = _mm512_dpbusd_epi32(sums, *code, _mm512_set1_epi32(*word));
            }
            sums
        })
    }
    #[inline(always)]
    fn dot_signed<const N: usize>(self, codes: &[__m512i; N], words: &[i32; N]) -> __m512i {
        let mut unsigned = *codes;
        for code in &mut unsigned {
            *code = instructions!(_mm512_xor_si512(*code, _mm512_set1_epi8(-128)));
        }
        self.dot_unsigned::<8, N>(&unsigned, words)
    }
    #[inline(always)]
    fn floats(self, a: __m512i) -> __m512 {
        instructions!(_mm512_cvtepi32_ps(a))
    }
}
