//! Formats without blocks: two columns of 16 rows at a time.

use bytemuck::Pod;
use half::f16;

use crate::kernels::simd::{LANES, Simd};

/// A plain format.
pub(crate) trait Plain {
    /// Two columns of 16 rows; the second one is zero after an odd last column.
    type Pair: Pod;

    /// Puts an element of the file into a lane; `second`: the second of the two columns.
    fn set(pair: &mut Self::Pair, lane: usize, second: usize, element: &[u8]);

    fn load<S: Simd>(s: S, pair: &Self::Pair) -> (S::Floats, S::Floats);
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl Plain for F32 {
    type Pair = [[f32; LANES]; 2];

    fn set(pair: &mut Self::Pair, lane: usize, second: usize, element: &[u8]) {
        pair[second][lane] = f32::from_le_bytes([element[0], element[1], element[2], element[3]]);
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, [first, second]: &Self::Pair) -> (S::Floats, S::Floats) {
        (s.load(first), s.load(second))
    }
}

impl Plain for F16 {
    type Pair = [[u16; LANES]; 2];

    fn set(pair: &mut Self::Pair, lane: usize, second: usize, element: &[u8]) {
        pair[second][lane] = f16::from_le_bytes([element[0], element[1]]).to_bits();
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, [first, second]: &Self::Pair) -> (S::Floats, S::Floats) {
        (s.load_f16(first), s.load_f16(second))
    }
}

impl Plain for Bf16 {
    type Pair = [u16; 2 * LANES];

    fn set(pair: &mut Self::Pair, lane: usize, second: usize, element: &[u8]) {
        pair[2 * lane + second] = u16::from_le_bytes([element[0], element[1]]);
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, pair: &Self::Pair) -> (S::Floats, S::Floats) {
        s.load_bf16_pairs(pair)
    }
}
