//! Any format by `f32` activations: weights become `f32` in registers, sums are `f32`. The reference path.

use std::marker::PhantomData;

use super::Kernel;
use crate::kernels::{
    format::{Block, Codes, GROUPS, Plain, Scales, TILE, TileScales},
    matrix::QuantMatrix,
    simd::{LANES, Simd},
};

/// A block format by `f32`.
pub(crate) struct ExactBlock<F>(PhantomData<F>);

/// A plain format by `f32`.
pub(crate) struct ExactPlain<F>(PhantomData<F>);

impl<F: Block> Kernel for ExactBlock<F> {
    type Activation = f32;

    const ROWS: usize = 4;

    fn length(matrix: &QuantMatrix) -> usize {
        matrix.columns()
    }

    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        activations: [&[f32]; ROWS],
    ) -> [[f32; LANES]; ROWS] {
        block_tile::<S, F, ROWS>(s, matrix.panel::<F>(panel), activations)
    }
}

impl<F: Plain> Kernel for ExactPlain<F> {
    type Activation = f32;

    const ROWS: usize = 8;

    fn length(matrix: &QuantMatrix) -> usize {
        matrix.columns()
    }

    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        activations: [&[f32]; ROWS],
    ) -> [[f32; LANES]; ROWS] {
        plain_tile::<S, F, ROWS>(s, matrix.plain_panel::<F>(panel), activations)
    }
}

/// The weights of one group of four columns, as the file format defines them. `group` is the group's place in its tile.
#[inline(always)]
pub(crate) fn tile_values<S: Simd, F: Block>(
    s: S,
    codes: S::Bytes,
    group: usize,
    scales: &TileScales<S>,
) -> [S::Floats; 4] {
    let mut values = if F::Codes::SIGNED {
        [s.signed_byte::<0>(codes), s.signed_byte::<1>(codes), s.signed_byte::<2>(codes), s.signed_byte::<3>(codes)]
    } else {
        [
            s.unsigned_byte::<0>(codes),
            s.unsigned_byte::<1>(codes),
            s.unsigned_byte::<2>(codes),
            s.unsigned_byte::<3>(codes),
        ]
    };
    let scale = if F::Scales::HALVES && group >= GROUPS / 2 { scales.high } else { scales.low };
    for value in &mut values {
        if F::ZERO != 0 {
            *value = s.sub(*value, s.splat(F::ZERO as f32));
        }
        *value = s.mul(*value, scale);
        if F::Scales::AFFINE {
            *value = s.add(*value, scales.offset);
        }
    }
    values
}

/// Sums of even and of odd columns: two chains of additions, so that one can go on while the other waits.
#[inline(always)]
fn join<S: Simd, const ROWS: usize>(s: S, sums: [[S::Floats; 2]; ROWS]) -> [[f32; LANES]; ROWS] {
    let mut lanes = [[0.0; LANES]; ROWS];
    for (lanes, [even, odd]) in lanes.iter_mut().zip(sums) {
        s.store(s.add(even, odd), lanes);
    }
    lanes
}

#[inline(always)]
fn block_tile<S: Simd, F: Block, const ROWS: usize>(
    s: S,
    (codes, scales): (&[F::Codes], &[F::Scales]),
    activations: [&[f32]; ROWS],
) -> [[f32; LANES]; ROWS] {
    let mut sums = [[s.splat(0.0); 2]; ROWS];
    let mut column = 0;
    for (codes, scales) in codes.chunks_exact(F::Scales::TILES).zip(scales) {
        for (tile, codes) in codes.iter().enumerate() {
            let groups = codes.groups(s);
            let scales = scales.tile(s, tile);
            for group in 0..GROUPS {
                let weights = tile_values::<S, F>(s, groups[group], group, &scales);
                for row in 0..ROWS {
                    let values = &activations[row][column + 4 * group..column + 4 * group + 4];
                    for at in 0..4 {
                        sums[row][at % 2] = s.fma(weights[at], s.splat(values[at]), sums[row][at % 2]);
                    }
                }
            }
            column += TILE;
        }
    }
    join(s, sums)
}

#[inline(always)]
fn plain_tile<S: Simd, F: Plain, const ROWS: usize>(
    s: S,
    weights: &[F::Pair],
    activations: [&[f32]; ROWS],
) -> [[f32; LANES]; ROWS] {
    let mut sums = [[s.splat(0.0); 2]; ROWS];
    let even = activations[0].len() / 2;
    let (whole, last) = weights.split_at(even);
    for (index, pair) in whole.iter().enumerate() {
        let (first, second) = F::load(s, pair);
        for row in 0..ROWS {
            let values = &activations[row][2 * index..2 * index + 2];
            sums[row][0] = s.fma(first, s.splat(values[0]), sums[row][0]);
            sums[row][1] = s.fma(second, s.splat(values[1]), sums[row][1]);
        }
    }
    for pair in last {
        let (first, _) = F::load(s, pair);
        for row in 0..ROWS {
            sums[row][0] = s.fma(first, s.splat(activations[row][2 * even]), sums[row][0]);
        }
    }
    join(s, sums)
}
