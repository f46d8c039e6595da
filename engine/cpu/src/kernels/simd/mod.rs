//! The vector operations that every kernel is written in, once: [`Simd`] has one implementation per instruction set.
//!
//! A value of a [`Simd`] type is a token: it exists only where the processor has the instructions (see
//! [`super::dispatch`]), so its operations are safe to call. All of them are `inline(always)`: they take on the
//! instruction set of the `target_feature` function that they end up in.
//!
//! Floating-point results are the same bits on every implementation: multiply-add is fused everywhere, sums across
//! lanes follow one fixed tree, and integer dot products are exact.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod scalar;

/// Lanes of a vector of floats: output rows of a panel, positions of a page, or neighbouring elements.
pub(crate) const LANES: usize = 16;

/// 16 lanes of `f32`, of `i32`, or of four bytes each.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    type Floats: Copy;
    type Ints: Copy;
    type Bytes: Copy;

    /// Rows of activations that fit the registers beside a group of weights.
    const ROWS: usize;

    /// Vectors of sums that fit the registers beside what is added to them.
    const SUMS: usize;

    /// What [`Simd::dot_signed`] leaves in the sum for each activation: the weights' codes count from here.
    const SIGNED_ZERO: i32;

    fn splat(self, value: f32) -> Self::Floats;
    fn load(self, from: &[f32; LANES]) -> Self::Floats;
    fn store(self, values: Self::Floats, to: &mut [f32; LANES]);
    fn load_f16(self, from: &[u16; LANES]) -> Self::Floats;
    /// Two bf16 per lane: the first ones and the second ones.
    fn load_bf16_pairs(self, from: &[u16; 2 * LANES]) -> (Self::Floats, Self::Floats);
    fn load_u8(self, from: &[u8; LANES]) -> Self::Floats;
    fn load_i8(self, from: &[i8; LANES]) -> Self::Floats;

    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn sub(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The larger; `b` where either is not a number.
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The smaller; `b` where either is not a number.
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// To the nearest whole number, ties to even.
    fn round(self, a: Self::Floats) -> Self::Floats;
    /// `2^a` for whole `a` in -126..=127.
    fn power_of_two(self, a: Self::Floats) -> Self::Floats;
    /// Sum over lanes: halves are added until one lane is left.
    fn sum(self, a: Self::Floats) -> f32;
    /// Largest lane.
    fn largest(self, a: Self::Floats) -> f32;
    /// Largest bit pattern of the absolute values: above `f32::INFINITY.to_bits()` if a lane is not a number.
    fn largest_magnitude_bits(self, a: Self::Floats, b: Self::Floats) -> u32;
    /// Whole numbers in -128..=127 to bytes, in order.
    fn store_i8(self, values: Self::Floats, to: &mut [i8; LANES]);

    /// Asks for the cache line in which the vector begins, without waiting for it.
    fn prefetch<T>(self, from: &T);

    fn bytes(self, from: &[u8; 64]) -> Self::Bytes;
    fn and(self, a: Self::Bytes, mask: u8) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Shifts within 16-bit units: bits that cross into the neighbouring byte are masked away by the caller.
    fn shift_left<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// As [`Simd::shift_left`].
    fn shift_right<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Byte `N` of each lane, unsigned.
    fn unsigned_byte<const N: i32>(self, a: Self::Bytes) -> Self::Floats;
    /// Byte `N` of each lane, signed.
    fn signed_byte<const N: i32>(self, a: Self::Bytes) -> Self::Floats;

    /// Per lane, the sum over groups of four bytes: unsigned codes of at most `BITS` bits (up to 6) by activations in
    /// -127..=127, four to a word, the same for all lanes.
    fn dot_unsigned<const BITS: u32, const N: usize>(self, codes: &[Self::Bytes; N], words: &[i32; N]) -> Self::Ints;
    /// As [`Simd::dot_unsigned`] for signed bytes, plus [`Simd::SIGNED_ZERO`] times the sum of the activations.
    fn dot_signed<const N: usize>(self, codes: &[Self::Bytes; N], words: &[i32; N]) -> Self::Ints;
    fn floats(self, a: Self::Ints) -> Self::Floats;

    /// `e^a`, within 2 units in the last place of the true value where that is a normal number; infinity from 89 up,
    /// 0 from -104 down; not a number stays one.
    #[inline(always)]
    fn exp(self, a: Self::Floats) -> Self::Floats {
        exp(self, a)
    }
}

/// Range reduction by powers of two and the polynomial of the Cephes library's `expf`.
#[inline(always)]
fn exp<S: Simd>(s: S, a: S::Floats) -> S::Floats {
    const COEFFICIENTS: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
    // The order of operands lets a NaN pass both clamps.
    let clamped = s.max(s.splat(-104.0), s.min(s.splat(89.0), a));
    let power = s.round(s.mul(clamped, s.splat(std::f32::consts::LOG2_E)));
    let high = s.fma(power, s.splat(-355.0 / 512.0), clamped);
    let rest = s.fma(power, s.splat(2.121_944_4e-4), high);
    let mut polynomial = s.splat(COEFFICIENTS[0]);
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = s.fma(polynomial, rest, s.splat(*coefficient));
    }
    let result = s.add(s.fma(polynomial, s.mul(rest, rest), rest), s.splat(1.0));
    // In two steps, so that each power of two is a normal number.
    let half = s.round(s.mul(power, s.splat(0.5)));
    s.mul(s.mul(result, s.power_of_two(half)), s.power_of_two(s.sub(power, half)))
}
