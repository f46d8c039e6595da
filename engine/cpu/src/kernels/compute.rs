//! The kernels' front: a pool of threads, an instruction set, a precision.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use bytemuck::Zeroable;

use super::{
    activation::{ActivationBlock, BLOCK, Quantise},
    format::{with_block_format, with_plain_format},
    isa::Isa,
    matrix::QuantMatrix,
    pool::Pool,
    product::{ExactBlock, ExactPlain, Fast, Kernel, Output, Product},
};

/// How products with quantised weights are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Weights as the file defines them, `f32` activations, `f32` sums.
    Exact,
    /// Activations rounded to eight bits per 32 values, as llama.cpp does: for block formats alone; weights in F32,
    /// F16 and BF16 are computed as in `Exact`.
    Fast,
}

/// Activations that stay in a core's cache while panels of weights pass by.
const CACHE_BYTES: usize = 256 * 1024;

/// Pieces of work per thread: what another process takes from one thread, the others can make up for.
const PIECES: usize = 4;

/// Values from which on a row-wise operation is worth waking the other threads for.
const WORTH_SHARING: usize = 32 * 1024;

/// What one rank computes with. All methods are deterministic: a row's result depends neither on the number of threads
/// nor on the rows that are computed with it.
pub struct Compute {
    pub(super) pool: Pool,
    pub(super) isa: Isa,
    precision: Precision,
    /// Quantised activations of the product in progress.
    scratch: Mutex<Vec<ActivationBlock>>,
}

impl Compute {
    /// Uses the processor's best instruction set.
    pub fn new(pool: Pool, precision: Precision) -> Self {
        Self::with_isa(pool, precision, Isa::best())
    }

    /// For tests and benchmarks of one instruction set.
    pub fn with_isa(pool: Pool, precision: Precision, isa: Isa) -> Self {
        Self { pool, isa, precision, scratch: Mutex::new(Vec::new()) }
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// `output[rows, out] = input[rows, in] * weights^T + bias`, where `weights` are matrices with `in` columns, one
    /// below the other (query, key and value; gate and up), with `out` rows together.
    ///
    /// # Panics
    /// If the lengths do not fit each other.
    pub fn linear(&self, input: &[f32], weights: &[QuantMatrix], bias: Option<&[f32]>, output: &mut [f32]) {
        let Some(columns) = weights.first().map(QuantMatrix::columns) else { return };
        assert!(columns > 0 && input.len() % columns == 0, "an input of whole rows of {columns}");
        let (rows, width) = (input.len() / columns, weights.iter().map(QuantMatrix::rows).sum());
        let shared = Output::new(output, rows, width);
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if weights.iter().any(|weight| self.is_fast(weight)) {
            self.quantise(input, columns, &mut scratch);
        }
        let pieces = Pieces::new(rows, columns, weights.iter().map(QuantMatrix::panels).sum(), self.pool.threads());
        self.pool.run(pieces.count(), |index| {
            let (rows, panels) = pieces.piece(index);
            let mut place = Place { panel: 0, output: shared };
            for weight in weights {
                assert_eq!(weight.columns(), columns, "columns of matrices that are one below the other");
                self.part(weight, &place, &panels, &rows, input, &scratch);
                place = place.below(weight);
            }
        });
        drop(scratch);
        if let Some(bias) = bias {
            add_bias(output, bias);
        }
    }

    fn is_fast(&self, weight: &QuantMatrix) -> bool {
        self.precision == Precision::Fast && weight.kind().block_elements() > 1
    }

    fn quantise(&self, input: &[f32], columns: usize, blocks: &mut Vec<ActivationBlock>) {
        blocks.clear();
        blocks.resize(input.len() / BLOCK, ActivationBlock::zeroed());
        let row_blocks = columns / BLOCK;
        let chunk = if input.len() < WORTH_SHARING { blocks.len() } else { 8 * row_blocks };
        self.pool.run_chunks(blocks, chunk, |index, blocks| {
            let first = index * chunk * BLOCK;
            self.isa.run(Quantise { values: &input[first..first + blocks.len() * BLOCK], blocks });
        });
    }

    /// What one piece has of one matrix.
    fn part(
        &self,
        weight: &QuantMatrix,
        place: &Place,
        panels: &Range<usize>,
        rows: &Range<usize>,
        input: &[f32],
        blocks: &[ActivationBlock],
    ) {
        let first = panels.start.max(place.panel);
        let end = panels.end.min(place.panel + weight.panels());
        if first >= end {
            return;
        }
        let piece =
            Piece { weight, panels: first - place.panel..end - place.panel, rows: rows.clone(), output: place.output };
        with_block_format!(
            weight.kind(),
            Format => if self.is_fast(weight) {
                self.product::<Fast<Format>>(piece, blocks);
            } else {
                self.product::<ExactBlock<Format>>(piece, input);
            },
            with_plain_format!(
                weight.kind(),
                Format => self.product::<ExactPlain<Format>>(piece, input),
                unreachable!("no such matrix is packed")
            )
        );
    }

    fn product<K: Kernel>(&self, piece: Piece<'_>, activations: &[K::Activation]) {
        let Piece { weight: matrix, panels, rows, output } = piece;
        self.isa.run(Product::<K> { matrix, panels, activations, rows, output });
    }
}

fn add_bias(output: &mut [f32], bias: &[f32]) {
    assert!(!bias.is_empty() && output.len() % bias.len() == 0, "a bias as long as a row");
    for row in output.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value += bias;
        }
    }
}

/// Where a matrix begins among those that are one below the other.
struct Place {
    panel: usize,
    output: Output,
}

impl Place {
    fn below(self, weight: &QuantMatrix) -> Self {
        Self { panel: self.panel + weight.panels(), output: self.output.after(weight.rows()) }
    }
}

/// Some panels of one matrix by some rows.
struct Piece<'a> {
    weight: &'a QuantMatrix,
    panels: Range<usize>,
    rows: Range<usize>,
    output: Output,
}

/// How a product is cut into pieces of work.
struct Pieces {
    rows: usize,
    rows_each: usize,
    panels: usize,
    panels_each: usize,
}

impl Pieces {
    fn new(rows: usize, columns: usize, panels: usize, threads: usize) -> Self {
        let panels_each = (panels / (threads * PIECES)).max(1);
        let pieces = panels.div_ceil(panels_each).max(1);
        // Fewer panels than pieces are wanted: the rows are cut too.
        let wanted = rows.div_ceil((threads * PIECES).div_ceil(pieces));
        let cached = CACHE_BYTES / (columns * size_of::<f32>());
        let rows_each = if threads == 1 { cached } else { cached.min(wanted) };
        Self { rows, rows_each: rows_each.max(8).next_multiple_of(8), panels, panels_each }
    }

    fn count(&self) -> usize {
        self.rows.div_ceil(self.rows_each) * self.panels.div_ceil(self.panels_each)
    }

    /// Pieces with the same rows are neighbours.
    fn piece(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let per_rows = self.panels.div_ceil(self.panels_each);
        let (rows, panels) = (index / per_rows * self.rows_each, index % per_rows * self.panels_each);
        (rows..(rows + self.rows_each).min(self.rows), panels..(panels + self.panels_each).min(self.panels))
    }
}
