//! Activations in eight bits: the fast mode's right-hand side, one scale to 32 values, as ggml's Q8_0 and Q8_1.

use bytemuck::{Pod, Zeroable};

use super::{
    isa::Work,
    simd::{LANES, Simd},
};

/// Values that share a scale.
pub(crate) const BLOCK: usize = 32;

/// Below this a block's scale would leave the range of `f32`; such a block counts as zeros.
const SMALLEST: f32 = 1e-30;

/// 32 activations: `value = scale * code`, codes in -127..=127.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ActivationBlock {
    /// Codes, four to a word, the first in the lowest byte.
    pub words: [i32; BLOCK / 4],
    /// Not a number if one of the values was not finite: the error shows in every output that it reaches.
    pub scale: f32,
    /// `scale * sum`.
    pub scaled_sum: f32,
    /// Sum of all codes, a whole number.
    pub sum: f32,
    /// Sum of the first 16 codes.
    pub low_sum: f32,
}

/// Quantises rows, each for itself: `values[rows, columns]` to `blocks[columns / 32, rows]`.
pub(crate) struct Quantise<'a> {
    pub values: &'a [f32],
    pub rows: usize,
    pub blocks: &'a mut [ActivationBlock],
}

impl Work for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (chunks, rest) = self.values.as_chunks::<BLOCK>();
        assert!(rest.is_empty() && chunks.len() == self.blocks.len() && chunks.len() % self.rows == 0);
        for (row, chunks) in chunks.chunks_exact(chunks.len() / self.rows).enumerate() {
            for (values, blocks) in chunks.iter().zip(self.blocks.chunks_exact_mut(self.rows)) {
                blocks[row] = quantise(s, values);
            }
        }
    }
}

#[inline(always)]
fn quantise<S: Simd>(s: S, values: &[f32; BLOCK]) -> ActivationBlock {
    let halves: &[[f32; LANES]; 2] = bytemuck::cast_ref(values);
    let (low, high) = (s.load(&halves[0]), s.load(&halves[1]));
    let bits = s.largest_magnitude_bits(low, high);
    let largest = f32::from_bits(bits);
    if bits >= f32::INFINITY.to_bits() {
        return ActivationBlock { scale: f32::NAN, scaled_sum: f32::NAN, ..ActivationBlock::zeroed() };
    }
    if largest < SMALLEST {
        return ActivationBlock::zeroed();
    }
    let inverse = s.splat(127.0 / largest);
    let (low, high) = (s.round(s.mul(low, inverse)), s.round(s.mul(high, inverse)));
    let mut codes = [[0_i8; LANES]; 2];
    s.store_i8(low, &mut codes[0]);
    s.store_i8(high, &mut codes[1]);
    let scale = largest / 127.0;
    let low_sum = s.sum(low);
    let sum = low_sum + s.sum(high);
    let words: [i32; BLOCK / 4] = bytemuck::cast(codes);
    ActivationBlock { words: words.map(i32::from_le), scale, scaled_sum: scale * sum, sum, low_sum }
}
