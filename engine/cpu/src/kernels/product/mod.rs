//! Products of a panel of weights with a few rows of activations. The sum of an output runs over the columns in one
//! order, whatever the number of rows, threads and lanes: a row's result does not depend on what is computed with it.

mod exact;
mod fast;

pub(crate) use exact::{ExactBlock, ExactPlain, tile_values};
pub(crate) use fast::Fast;

use std::ops::Range;

use super::{
    isa::Work,
    matrix::QuantMatrix,
    simd::{LANES, Simd},
};

/// Where results go: `output[row * stride + offset + column]`, shared by the threads of a step.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    start: *mut f32,
    rows: usize,
    stride: usize,
    /// Columns before the first one.
    offset: usize,
}

// SAFETY: the threads of a step write disjoint columns (`Output::write`'s contract) and nobody reads before they join.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

impl Output {
    /// The borrow ends when the caller's step does; the caller keeps `values` borrowed until then.
    pub(crate) fn new(values: &mut [f32], rows: usize, stride: usize) -> Self {
        assert_eq!(values.len(), rows * stride, "an output of {rows} rows of {stride}");
        Self { start: values.as_mut_ptr(), rows, stride, offset: 0 }
    }

    /// The same without the next `columns` columns.
    pub(crate) fn after(self, columns: usize) -> Self {
        Self { offset: self.offset + columns, ..self }
    }

    /// Writes the first `count` lanes to `row`, from column `column` on.
    ///
    /// # Safety
    /// The values that [`Output::new`] was given are still borrowed, and no other thread writes these columns.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, row: usize, column: usize, lanes: &[f32; LANES], count: usize) {
        let column = self.offset + column;
        assert!(row < self.rows && count <= LANES && column + count <= self.stride);
        // SAFETY: inside the values by the assertion and `new`'s; exclusive by this function's contract.
        let to = unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride + column), count) };
        to.copy_from_slice(&lanes[..count]);
    }
}

/// How a panel meets its activations.
pub(crate) trait Kernel {
    /// What a row of activations is made of.
    type Activation: Sync;

    /// Most rows that are worth computing together, if they fit the registers.
    const ROWS: usize;

    /// Length of a row of activations for this matrix.
    fn length(matrix: &QuantMatrix) -> usize;

    /// 16 outputs for each of the rows.
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        activations: [&[Self::Activation]; ROWS],
    ) -> [[f32; LANES]; ROWS];
}

/// Panels of a matrix by rows of activations.
pub(crate) struct Product<'a, K: Kernel> {
    pub matrix: &'a QuantMatrix,
    pub panels: Range<usize>,
    /// `[all rows, K::length]`.
    pub activations: &'a [K::Activation],
    pub rows: Range<usize>,
    pub output: Output,
}

impl<K: Kernel> Product<'_, K> {
    /// Returns how many rows that were.
    ///
    /// # Safety
    /// As [`Output::write`] for the panel's columns.
    #[inline(always)]
    unsafe fn rows<S: Simd, const ROWS: usize>(&self, s: S, panel: usize, row: usize) -> usize {
        let length = K::length(self.matrix);
        let activations: [&[K::Activation]; ROWS] =
            std::array::from_fn(|at| &self.activations[(row + at) * length..(row + at + 1) * length]);
        let column = panel * LANES;
        let count = (self.matrix.rows() - column).min(LANES);
        for (at, lanes) in K::tile::<S, ROWS>(s, self.matrix, panel, activations).iter().enumerate() {
            // SAFETY: this function's contract.
            unsafe { self.output.write(row + at, column, lanes, count) };
        }
        ROWS
    }
}

/// Runs in one thread: whoever makes the work gives each panel's columns to one work at a time, and keeps the output
/// borrowed until the work is done.
impl<K: Kernel> Work for Product<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for panel in self.panels.clone() {
            let mut row = self.rows.start;
            while row < self.rows.end {
                let left = self.rows.end - row;
                // SAFETY: the contract of this implementation.
                row += unsafe {
                    if const { fits::<S, K>(8) } && left >= 8 {
                        self.rows::<S, 8>(s, panel, row)
                    } else if const { fits::<S, K>(4) } && left >= 4 {
                        self.rows::<S, 4>(s, panel, row)
                    } else if const { fits::<S, K>(2) } && left >= 2 {
                        self.rows::<S, 2>(s, panel, row)
                    } else {
                        self.rows::<S, 1>(s, panel, row)
                    }
                };
            }
        }
    }
}

/// So many rows fit the registers.
const fn fits<S: Simd, K: Kernel>(rows: usize) -> bool {
    rows <= K::ROWS && rows <= S::ROWS
}
