//! Block formats by activations in eight bits.

use std::marker::PhantomData;

use super::{Kernel, Rows};
use crate::kernels::{
    activation::ActivationBlock,
    format::{Block, Codes, GROUPS, Scales},
    matrix::QuantMatrix,
    simd::{LANES, Simd},
};

/// A block format by [`ActivationBlock`]s.
pub(crate) struct Fast<F>(PhantomData<F>);

impl<F: Block> Kernel for Fast<F> {
    type Activation = ActivationBlock;

    fn length(matrix: &QuantMatrix) -> usize {
        matrix.tiles()
    }

    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        rows: &Rows<'_, ActivationBlock>,
        first: usize,
    ) -> [[f32; LANES]; ROWS] {
        tile::<S, F, ROWS>(s, matrix.panel::<F>(panel), rows.places(first))
    }
}

#[inline(always)]
fn tile<'a, S: Simd, F: Block, const ROWS: usize>(
    s: S,
    (codes, scales): (&[F::Codes], &[F::Scales]),
    mut activations: impl Iterator<Item = &'a [ActivationBlock; ROWS]>,
) -> [[f32; LANES]; ROWS] {
    let mut sums = [s.splat(0.0); ROWS];
    for (codes, scales) in codes.chunks_exact(F::Scales::TILES).zip(scales) {
        for (tile, codes) in codes.iter().enumerate() {
            let groups = codes.groups(s);
            let scales = scales.tile(s, tile);
            let Some(blocks) = activations.next() else { unreachable!("a block of activations for every tile") };
            for row in 0..ROWS {
                let block = &blocks[row];
                let scale = s.splat(block.scale);
                let mut sum = sums[row];
                if F::Scales::AFFINE {
                    sum = s.fma(scales.offset, s.splat(block.scaled_sum), sum);
                }
                if F::Scales::HALVES {
                    let [a, b, c, d, e, f, g, h] = groups;
                    let [i, j, k, l, m, n, o, p] = block.words;
                    let low = dot::<S, F, 4>(s, &[a, b, c, d], &[i, j, k, l], block.low_sum);
                    let high = dot::<S, F, 4>(s, &[e, f, g, h], &[m, n, o, p], block.sum - block.low_sum);
                    sum = s.fma(low, s.mul(scales.low, scale), sum);
                    sum = s.fma(high, s.mul(scales.high, scale), sum);
                } else {
                    let whole = dot::<S, F, GROUPS>(s, &groups, &block.words, block.sum);
                    sum = s.fma(whole, s.mul(scales.low, scale), sum);
                }
                sums[row] = sum;
            }
        }
    }
    let mut lanes = [[0.0; LANES]; ROWS];
    for (lanes, sum) in lanes.iter_mut().zip(sums) {
        s.store(sum, lanes);
    }
    lanes
}

/// The sum of `code - zero` times activation: a whole number below 2^24, so exact.
#[inline(always)]
fn dot<S: Simd, F: Block, const N: usize>(s: S, groups: &[S::Bytes; N], words: &[i32; N], sum: f32) -> S::Floats {
    let zero = F::ZERO + if F::Codes::SIGNED { S::SIGNED_ZERO } else { 0 };
    let product = s.floats(F::Codes::dot(s, groups, words));
    if zero == 0 { product } else { s.fma(s.splat(-zero as f32), s.splat(sum), product) }
}
