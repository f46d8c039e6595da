//! The same operations without vector instructions: any processor, and what the others are tested against.

use half::f16;

use super::{LANES, Simd};

#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn map<T: Copy, U: Copy + Default, const N: usize>(a: [T; N], f: impl Fn(T) -> U) -> [U; N] {
    let mut result = [U::default(); N];
    for (to, from) in result.iter_mut().zip(a) {
        *to = f(from);
    }
    result
}

#[inline(always)]
fn zip<const N: usize, T: Copy + Default>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    let mut result = [T::default(); N];
    for lane in 0..N {
        result[lane] = f(a[lane], b[lane]);
    }
    result
}

/// Shifts each pair of neighbouring bytes as one little-endian number.
#[inline(always)]
fn shift(a: [u8; 64], f: impl Fn(u16) -> u16) -> [u8; 64] {
    let mut result = [0; 64];
    for (to, from) in result.chunks_exact_mut(2).zip(a.chunks_exact(2)) {
        to.copy_from_slice(&f(u16::from_le_bytes([from[0], from[1]])).to_le_bytes());
    }
    result
}

#[inline(always)]
fn halve(a: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut values = a;
    for width in [8, 4, 2, 1] {
        for lane in 0..width {
            values[lane] = f(values[lane], values[lane + width]);
        }
    }
    values[0]
}

#[inline(always)]
fn dot<const N: usize>(codes: &[[u8; 64]; N], words: &[i32; N], widen: impl Fn(u8) -> i32) -> [i32; LANES] {
    let mut sums = [0; LANES];
    for (code, word) in codes.iter().zip(words) {
        let activations = word.to_le_bytes();
        for (sum, quad) in sums.iter_mut().zip(code.chunks_exact(4)) {
            for (byte, activation) in quad.iter().zip(activations) {
                *sum += widen(*byte) * i32::from(activation as i8);
            }
        }
    }
    sums
}

impl Simd for Scalar {
    type Floats = [f32; LANES];
    type Ints = [i32; LANES];
    type Bytes = [u8; 64];

    const ROWS: usize = 1;
    const SUMS: usize = 1;

    const SIGNED_ZERO: i32 = 0;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Floats {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::Floats {
        *from
    }
    #[inline(always)]
    fn store(self, values: Self::Floats, to: &mut [f32; LANES]) {
        *to = values;
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::Floats {
        map(*from, |bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_bf16_pairs(self, from: &[u16; 2 * LANES]) -> (Self::Floats, Self::Floats) {
        let mut result = ([0.0; LANES], [0.0; LANES]);
        for (lane, pair) in from.chunks_exact(2).enumerate() {
            result.0[lane] = f32::from_bits(u32::from(pair[0]) << 16);
            result.1[lane] = f32::from_bits(u32::from(pair[1]) << 16);
        }
        result
    }
    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::Floats {
        map(*from, f32::from)
    }
    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::Floats {
        map(*from, f32::from)
    }
    #[inline(always)]
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        let mut result = c;
        for lane in 0..LANES {
            result[lane] = a[lane].mul_add(b[lane], c[lane]);
        }
        result
    }
    #[inline(always)]
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: Self::Floats) -> Self::Floats {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    fn power_of_two(self, a: Self::Floats) -> Self::Floats {
        map(a, |power| f32::from_bits(((power as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn sum(self, a: Self::Floats) -> f32 {
        halve(a, |a, b| a + b)
    }
    #[inline(always)]
    fn largest(self, a: Self::Floats) -> f32 {
        halve(a, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn largest_magnitude_bits(self, a: Self::Floats, b: Self::Floats) -> u32 {
        a.iter().chain(&b).map(|value| value.to_bits() & 0x7fff_ffff).max().unwrap_or(0)
    }
    #[inline(always)]
    fn store_i8(self, values: Self::Floats, to: &mut [i8; LANES]) {
        *to = map(values, |value| value as i8);
    }
    #[inline(always)]
    fn prefetch<T>(self, _from: &T) {}
    #[inline(always)]
    fn bytes(self, from: &[u8; 64]) -> Self::Bytes {
        *from
    }
    #[inline(always)]
    fn and(self, a: Self::Bytes, mask: u8) -> Self::Bytes {
        a.map(|byte| byte & mask)
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        let mut result = a;
        for (to, from) in result.iter_mut().zip(b) {
            *to |= from;
        }
        result
    }
    #[inline(always)]
    fn shift_left<const N: i32>(self, a: Self::Bytes) -> Self::Bytes {
        shift(a, |unit| unit << N)
    }
    #[inline(always)]
    fn shift_right<const N: i32>(self, a: Self::Bytes) -> Self::Bytes {
        shift(a, |unit| unit >> N)
    }
    #[inline(always)]
    fn unsigned_byte<const N: i32>(self, a: Self::Bytes) -> Self::Floats {
        let mut result = [0.0; LANES];
        for (lane, quad) in a.chunks_exact(4).enumerate() {
            result[lane] = f32::from(quad[N as usize]);
        }
        result
    }
    #[inline(always)]
    fn signed_byte<const N: i32>(self, a: Self::Bytes) -> Self::Floats {
        let mut result = [0.0; LANES];
        for (lane, quad) in a.chunks_exact(4).enumerate() {
            result[lane] = f32::from(quad[N as usize] as i8);
        }
        result
    }
    #[inline(always)]
    fn dot_unsigned<const BITS: u32, const N: usize>(self, codes: &[Self::Bytes; N], words: &[i32; N]) -> Self::Ints {
        dot(codes, words, i32::from)
    }
    #[inline(always)]
    fn dot_signed<const N: usize>(self, codes: &[Self::Bytes; N], words: &[i32; N]) -> Self::Ints {
        dot(codes, words, |byte| i32::from(byte as i8))
    }
    #[inline(always)]
    fn floats(self, a: Self::Ints) -> Self::Floats {
        map(a, |value| value as f32)
    }
}
