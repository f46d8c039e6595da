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
        match to.first_chunk_mut() {
            // The usual case, without a call.
            Some(all) => *all = *lanes,
            None => to.copy_from_slice(&lanes[..count]),
        }
    }
}

/// Rows whose activations are interleaved: see [`Rows`].
pub(crate) const GROUP: usize = 8;

/// Activations of up to [`GROUP`] rows, `[length, rows]`: one stream of memory whatever the number of rows. A single
/// row lies as usual.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, A> {
    values: &'a [A],
    rows: usize,
}

impl<'a, A> Rows<'a, A> {
    /// Group `group` of activations of `rows` rows of `length`.
    pub(crate) fn group(all: &'a [A], length: usize, rows: usize, group: usize) -> Self {
        let first = group * GROUP;
        let count = GROUP.min(rows - first);
        Self { values: &all[first * length..(first + count) * length], rows: count }
    }

    /// What rows `first..first + ROWS` have at each place, in order.
    #[inline(always)]
    fn places<const ROWS: usize>(&self, first: usize) -> impl Iterator<Item = &'a [A; ROWS]> {
        assert!(ROWS <= self.rows && first <= self.rows - ROWS, "rows of the group");
        self.values.chunks_exact(self.rows).map(move |place| place[first..].first_chunk().expect("checked above"))
    }
}

/// How a panel meets its activations.
pub(crate) trait Kernel {
    /// What a row of activations is made of.
    type Activation: Sync;

    /// Length of a row of activations for this matrix.
    fn length(matrix: &QuantMatrix) -> usize;

    /// 16 outputs for each of the rows `first..first + ROWS`.
    fn tile<S: Simd, const ROWS: usize>(
        s: S,
        matrix: &QuantMatrix,
        panel: usize,
        rows: &Rows<'_, Self::Activation>,
        first: usize,
    ) -> [[f32; LANES]; ROWS];
}

/// Panels of a matrix by rows of activations.
pub(crate) struct Product<'a, K: Kernel> {
    pub matrix: &'a QuantMatrix,
    pub panels: Range<usize>,
    /// Groups of interleaved rows, see [`Rows`].
    pub activations: &'a [K::Activation],
    /// Rows of all groups.
    pub rows: usize,
    pub groups: Range<usize>,
    pub output: Output,
}

impl<K: Kernel> Product<'_, K> {
    /// Rows `first..first + ROWS` of a group; returns `ROWS`.
    ///
    /// # Safety
    /// As [`Output::write`] for the columns of the panels.
    #[inline(always)]
    unsafe fn tile<S: Simd, const ROWS: usize>(&self, s: S, group: usize, first: usize) -> usize {
        let rows = Rows::group(self.activations, K::length(self.matrix), self.rows, group);
        for panel in self.panels.clone() {
            let column = panel * LANES;
            let count = (self.matrix.rows() - column).min(LANES);
            for (at, lanes) in K::tile::<S, ROWS>(s, self.matrix, panel, &rows, first).iter().enumerate() {
                // SAFETY: this function's contract.
                unsafe { self.output.write(group * GROUP + first + at, column, lanes, count) };
            }
        }
        ROWS
    }
}

/// Runs in one thread: the code that makes the work gives each panel's columns of a group to one work, and keeps the output
/// borrowed until the work is done.
impl<K: Kernel> Work for Product<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for group in self.groups.clone() {
            let count = GROUP.min(self.rows - group * GROUP);
            let mut first = 0;
            while first < count {
                let left = count - first;
                // SAFETY: the contract of this implementation.
                first += unsafe {
                    if const { S::ROWS >= 8 } && left >= 8 {
                        self.tile::<S, 8>(s, group, first)
                    } else if const { S::ROWS >= 4 } && left >= 4 {
                        self.tile::<S, 4>(s, group, first)
                    } else if const { S::ROWS >= 2 } && left >= 2 {
                        self.tile::<S, 2>(s, group, first)
                    } else {
                        self.tile::<S, 1>(s, group, first)
                    }
                };
            }
        }
    }
}
