//! The kernels' front: a pool of threads, an instruction set, a precision.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use bytemuck::Zeroable;

use super::{
    activation::{ActivationBlock, BLOCK, Quantise},
    attention::CacheElement,
    format::{with_block_format, with_plain_format},
    isa::Isa,
    matrix::QuantMatrix,
    pool::Pool,
    product::{ExactBlock, ExactPlain, Fast, GROUP, Kernel, Output, Product},
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

impl Precision {
    /// How keys and values are kept beside such products.
    pub fn cache(self) -> CacheElement {
        match self {
            Self::Exact => CacheElement::F32,
            Self::Fast => CacheElement::F16,
        }
    }
}

/// Weights that stay in a core's cache while groups of rows pass by.
const CACHE_BYTES: usize = 256 * 1024;

/// Pieces of work per thread: what another process takes from one thread, the others can make up for.
const PIECES: usize = 4;

/// Values from which on a row-wise operation is worth waking the other threads for.
pub(super) const WORTH_SHARING: usize = 32 * 1024;

/// What one rank computes with. All methods are deterministic: a row's result depends neither on the number of threads
/// nor on the rows that are computed with it.
pub struct Compute {
    pub(super) pool: Pool,
    pub(super) isa: Isa,
    precision: Precision,
    scratch: Mutex<Scratch>,
}

impl Compute {
    /// Uses the processor's best instruction set.
    pub fn new(pool: Pool, precision: Precision) -> Self {
        Self::with_isa(pool, precision, Isa::best())
    }

    /// For tests and benchmarks of one instruction set.
    pub fn with_isa(pool: Pool, precision: Precision, isa: Isa) -> Self {
        Self { pool, isa, precision, scratch: Mutex::default() }
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
        assert!(columns > 0 && input.len().is_multiple_of(columns), "an input of whole rows of {columns}");
        assert!(weights.iter().all(|weight| weight.columns() == columns), "matrices that are one below the other");
        let (rows, width) = (input.len() / columns, weights.iter().map(QuantMatrix::rows).sum());
        let shared = Output::new(output, rows, width);
        if output.is_empty() {
            return;
        }
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let activations = self.arrange(input, columns, weights, &mut scratch);
        let pieces = Pieces::new(rows, weights, self.pool.threads());
        self.pool.run(pieces.count(), |index| {
            let (groups, panels) = pieces.piece(index);
            let (mut above, mut output) = (0, shared);
            for weight in weights {
                let end = above + weight.panels();
                let range = panels.start.clamp(above, end) - above..panels.end.clamp(above, end) - above;
                self.part(&Part { weight, panels: range, rows, groups: groups.clone(), output }, &activations);
                (above, output) = (end, output.after(weight.rows()));
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

    /// Brings the input into the order and the type that the matrices want.
    fn arrange<'a>(
        &self,
        input: &'a [f32],
        columns: usize,
        weights: &[QuantMatrix],
        scratch: &'a mut Scratch,
    ) -> Activations<'a> {
        let chunk =
            if input.len() < WORTH_SHARING { input.len().next_multiple_of(GROUP * columns) } else { GROUP * columns };
        let Scratch { blocks, values } = scratch;
        blocks.clear();
        if weights.iter().any(|weight| self.is_fast(weight)) {
            blocks.resize(input.len() / BLOCK, ActivationBlock::zeroed());
            self.pool.run_chunks(blocks, chunk / BLOCK, |index, blocks| {
                let values = &input[index * chunk..][..blocks.len() * BLOCK];
                for (values, blocks) in values.chunks(GROUP * columns).zip(blocks.chunks_mut(GROUP * columns / BLOCK)) {
                    self.isa.run(Quantise { values, rows: values.len() / columns, blocks });
                }
            });
        }
        let single = input.len() == columns;
        if single || weights.iter().all(|weight| self.is_fast(weight)) {
            return Activations { values: input, blocks };
        }
        values.resize(input.len(), 0.0);
        self.pool.run_chunks(values, chunk, |index, values| {
            let input = &input[index * chunk..][..values.len()];
            for (input, values) in input.chunks(GROUP * columns).zip(values.chunks_mut(GROUP * columns)) {
                interleave(input, columns, values);
            }
        });
        Activations { values, blocks }
    }

    /// What one piece has of one matrix.
    fn part(&self, part: &Part<'_>, activations: &Activations<'_>) {
        if part.panels.is_empty() {
            return;
        }
        with_block_format!(
            part.weight.kind(),
            Format => if self.is_fast(part.weight) {
                self.product::<Fast<Format>>(part, activations.blocks);
            } else {
                self.product::<ExactBlock<Format>>(part, activations.values);
            },
            with_plain_format!(
                part.weight.kind(),
                Format => self.product::<ExactPlain<Format>>(part, activations.values),
                unreachable!("no such matrix is packed")
            )
        );
    }

    fn product<K: Kernel>(&self, part: &Part<'_>, activations: &[K::Activation]) {
        let Part { weight: matrix, rows, output, .. } = *part;
        let (panels, groups) = (part.panels.clone(), part.groups.clone());
        self.isa.run(Product::<K> { matrix, panels, activations, rows, groups, output });
    }
}

/// `input[rows, columns]` to `output[columns, rows]`.
fn interleave(input: &[f32], columns: usize, output: &mut [f32]) {
    let rows = input.len() / columns;
    for (row, values) in input.chunks_exact(columns).enumerate() {
        for (place, value) in output.chunks_exact_mut(rows).zip(values) {
            place[row] = *value;
        }
    }
}

fn add_bias(output: &mut [f32], bias: &[f32]) {
    assert!(!bias.is_empty() && output.len().is_multiple_of(bias.len()), "a bias as long as a row");
    for row in output.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value += bias;
        }
    }
}

/// Activations of the product in progress, kept for the next one.
#[derive(Default)]
struct Scratch {
    blocks: Vec<ActivationBlock>,
    values: Vec<f32>,
}

/// Groups of interleaved rows, as `f32` and quantised: what the matrices of the product need of them.
struct Activations<'a> {
    values: &'a [f32],
    blocks: &'a [ActivationBlock],
}

/// Some panels of one matrix by some groups of rows.
struct Part<'a> {
    weight: &'a QuantMatrix,
    panels: Range<usize>,
    rows: usize,
    groups: Range<usize>,
    output: Output,
}

/// How a product is cut into pieces of work.
struct Pieces {
    groups: usize,
    groups_each: usize,
    panels: usize,
    panels_each: usize,
}

impl Pieces {
    fn new(rows: usize, weights: &[QuantMatrix], threads: usize) -> Self {
        let (groups, wanted) = (rows.div_ceil(GROUP), threads * PIECES);
        let panels: usize = weights.iter().map(QuantMatrix::panels).sum();
        let bytes: usize = weights.iter().map(QuantMatrix::bytes).sum();
        // With one group the weights pass by once; with more, a piece's weights stay in the cache.
        let cached = if groups > 1 { CACHE_BYTES * panels / bytes.max(1) } else { panels };
        let panels_each = (panels / wanted).min(cached).max(1);
        let pieces = panels.div_ceil(panels_each).max(1);
        // Fewer panels than pieces are wanted: the rows are cut too.
        let groups_each = groups.div_ceil(wanted.div_ceil(pieces)).max(1);
        Self { groups, groups_each, panels, panels_each }
    }

    fn count(&self) -> usize {
        self.groups.div_ceil(self.groups_each) * self.panels.div_ceil(self.panels_each)
    }

    fn piece(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let cuts = self.panels.div_ceil(self.panels_each);
        let (group, panel) = (index / cuts * self.groups_each, index % cuts * self.panels_each);
        (group..(group + self.groups_each).min(self.groups), panel..(panel + self.panels_each).min(self.panels))
    }
}
