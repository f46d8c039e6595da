//! Any format by `f32` activations: weights become `f32` in registers, sums are `f32`. The reference path.

use std::marker::PhantomData;

use super::{Kernel, Rows};
use crate::kernels::{
    format::{Block, Codes, GROUPS, Plain, Scales, TileScales},
    matrix::QuantMatrix,
    simd::{LANES, Simd},
};

/// A block format by `f32`.
pub(crate) struct ExactBlock<F>(PhantomData<F>);

/// A plain format by `f32`.
pub(crate) struct ExactPlain<F>(PhantomData<F>);

impl<F: Block> Kernel for ExactBlock<F> {
    type Activation = f32;

    fn length(matrix: &QuantMatrix) -> usize {
        matrix.columns()
    }

    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        rows: &Rows<'_, f32>,
        first: usize,
    ) -> [[f32; LANES]; ROWS] {
        block_tile::<S, F, ROWS>(s, matrix.panel::<F>(panel), rows.places(first))
    }
}

impl<F: Plain> Kernel for ExactPlain<F> {
    type Activation = f32;

    fn length(matrix: &QuantMatrix) -> usize {
        matrix.columns()
    }

    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        rows: &Rows<'_, f32>,
        first: usize,
    ) -> [[f32; LANES]; ROWS] {
        plain_tile::<S, F, ROWS>(s, matrix.plain_panel::<F>(panel), rows.places(first))
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
fn block_tile<'a, S: Simd, F: Block, const ROWS: usize>(
    s: S,
    (codes, scales): (&[F::Codes], &[F::Scales]),
    mut activations: impl Iterator<Item = &'a [f32; ROWS]>,
) -> [[f32; LANES]; ROWS] {
    let mut sums = [[s.splat(0.0); 2]; ROWS];
    for (codes, scales) in codes.chunks_exact(F::Scales::TILES).zip(scales) {
        for (tile, codes) in codes.iter().enumerate() {
            let groups = codes.groups(s);
            let scales = scales.tile(s, tile);
            for (group, codes) in groups.iter().enumerate() {
                let weights = tile_values::<S, F>(s, *codes, group, &scales);
                for at in 0..4 {
                    let Some(values) = activations.next() else { unreachable!("an activation for every column") };
                    for row in 0..ROWS {
                        sums[row][at % 2] = s.fma(weights[at], s.splat(values[row]), sums[row][at % 2]);
                    }
                }
            }
        }
    }
    join(s, sums)
}

#[inline(always)]
fn plain_tile<'a, S: Simd, F: Plain, const ROWS: usize>(
    s: S,
    weights: &[F::Pair],
    mut activations: impl Iterator<Item = &'a [f32; ROWS]>,
) -> [[f32; LANES]; ROWS] {
    let mut sums = [[s.splat(0.0); 2]; ROWS];
    for pair in weights {
        let (first, second) = F::load(s, pair);
        let Some(values) = activations.next() else { unreachable!("an activation for every column") };
        for row in 0..ROWS {
            sums[row][0] = s.fma(first, s.splat(values[row]), sums[row][0]);
        }
        // There is none after an odd last column.
        let Some(values) = activations.next() else { break };
        for row in 0..ROWS {
            sums[row][1] = s.fma(second, s.splat(values[row]), sums[row][1]);
        }
    }
    join(s, sums)
}
