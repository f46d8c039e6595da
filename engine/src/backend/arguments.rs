//! Arguments of the operations, by name. `rows` is the number of rows of every buffer in the same struct.

use std::ops::Range;

use super::Backend;
use crate::model::{Activation, MoeConfig};
use crate::sampler::{Draw, LogitChange};

/// A regular set of column blocks in rows of `row` columns: `count` blocks of `width` columns, `stride` apart, the
/// first at `offset`. Nine query heads of 64 before three keys and values: `{row: 960, offset: 0, count: 9, stride: 64,
/// width: 64}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub row: usize,
    pub offset: usize,
    pub count: usize,
    pub stride: usize,
    pub width: usize,
}

/// Which cached head a query head reads: `(head + offset) / group`. The offset is not 0 where a rank's first query
/// head is not the first of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadGroups {
    /// Query heads of this rank.
    pub query_heads: usize,
    pub group: usize,
    pub offset: usize,
}

/// Query heads over the cached heads of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionHeads {
    pub groups: HeadGroups,
    pub cached: usize,
}

/// See [`Backend::choose`].
pub struct Choose<'a, B: Backend> {
    pub logits: &'a B::Buffer,
    /// Columns of a row.
    pub width: usize,
    pub rows: usize,
    /// The token of each column; none where they are the same.
    pub vocabulary: Option<&'a B::Tokens>,
    /// Where the first row's choice goes.
    pub place: usize,
}

/// See [`Backend::draw`].
pub struct DrawRows<'a, B: Backend> {
    pub logits: &'a mut B::Buffer,
    /// Columns of a row.
    pub width: usize,
    /// One for each row.
    pub draws: &'a [Draw],
    pub changes: &'a [LogitChange],
    /// Where the first row's choice goes.
    pub place: usize,
}

/// See [`Backend::embed`].
pub struct Embed<'a, B: Backend> {
    pub step: &'a B::Step,
    pub table: &'a B::Linear,
    /// Token id of the table's first row.
    pub first: usize,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::rms_norm`]. Rows are as wide as the weight.
pub struct Norm<'a, B: Backend> {
    pub input: &'a B::Buffer,
    pub weight: &'a B::Vector,
    pub epsilon: f32,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::rms_norm_blocks`]. The weight is as long as a block is wide.
pub struct NormBlocks<'a, B: Backend> {
    pub buffer: &'a mut B::Buffer,
    pub blocks: Blocks,
    pub weight: &'a B::Vector,
    pub epsilon: f32,
    pub rows: usize,
}

/// See [`Backend::add_rms_norm`]. Rows are as wide as the weight. The addend may be overwritten.
pub struct AddNorm<'a, B: Backend> {
    pub addend: &'a mut B::Buffer,
    pub residual: &'a mut B::Buffer,
    pub weight: &'a B::Vector,
    pub epsilon: f32,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::linear`]. `input` is `[rows, in]`, `output` is `[rows, out]`.
pub struct Product<'a, B: Backend> {
    pub weight: &'a B::Linear,
    pub input: &'a B::Buffer,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::rotate`]. Blocks are as wide as the rotated part of a head.
pub struct Rotate<'a, B: Backend> {
    pub step: &'a B::Step,
    pub rope: &'a B::Rope,
    pub buffer: &'a mut B::Buffer,
    pub blocks: Blocks,
    pub rows: usize,
}

/// See [`Backend::append`]. Segments of the step say which pages and slots the rows go to.
pub struct Append<'a, B: Backend> {
    pub step: &'a B::Step,
    pub source: &'a B::Buffer,
    /// Columns of the keys, one block per cached head; for latents the whole cached row as one block.
    pub key: Blocks,
    /// Columns of the values; none for latents.
    pub value: Option<Blocks>,
    pub cache: &'a mut B::Cache,
    pub layer: usize,
    pub rows: usize,
}

/// See [`Backend::attend`]. Query head `h` is in columns `query.offset + h * query.stride` of `source`; the output is
/// `[rows, query_heads * head]`.
pub struct Attend<'a, B: Backend> {
    pub step: &'a B::Step,
    pub source: &'a B::Buffer,
    pub query: Blocks,
    pub groups: HeadGroups,
    /// Factor of the scores before softmax.
    pub scale: f32,
    pub cache: &'a B::Cache,
    pub layer: usize,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::attend_latent`]. Each query block holds the part without position first, then the rotated part;
/// the output is `[rows, heads * value_dimension]`.
pub struct AttendLatent<'a, B: Backend> {
    pub step: &'a B::Step,
    pub source: &'a B::Buffer,
    pub query: Blocks,
    pub up: &'a B::LatentUp,
    pub scale: f32,
    pub cache: &'a B::Cache,
    pub layer: usize,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::activate`]. `input` is `[rows, 2 * width]`, `output` is `[rows, width]`.
pub struct Activate<'a, B: Backend> {
    pub activation: Activation,
    pub input: &'a B::Buffer,
    pub width: usize,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::route`]. `logits` is `[rows, experts]`; `bias` is added to the scores for the choice alone.
pub struct Route<'a, B: Backend> {
    pub config: &'a MoeConfig,
    pub logits: &'a B::Buffer,
    pub bias: Option<&'a B::Vector>,
    pub routes: &'a mut B::Routes,
    pub rows: usize,
}

/// See [`Backend::mix`]. `input` and `output` are `[rows, width]`.
pub struct Mix<'a, B: Backend> {
    pub experts: &'a B::Experts,
    pub activation: Activation,
    pub input: &'a B::Buffer,
    pub width: usize,
    pub routes: &'a B::Routes,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
}

/// See [`Backend::add`].
pub struct Add<'a, B: Backend> {
    pub addend: &'a B::Buffer,
    pub target: &'a mut B::Buffer,
    pub width: usize,
    pub rows: usize,
}

/// See [`Backend::gather`].
pub struct Gather<'a, B: Backend> {
    pub step: &'a B::Step,
    /// Which of the step's logit rows.
    pub range: Range<usize>,
    pub input: &'a B::Buffer,
    pub width: usize,
    pub output: &'a mut B::Buffer,
}

/// See [`Backend::move_rows`].
pub struct MoveRows<'a, B: Backend> {
    pub step: &'a B::Step,
    pub cache: &'a mut B::Cache,
}

/// See [`Backend::copy_columns`]. Source rows have `width` columns.
pub struct CopyColumns<'a, B: Backend> {
    pub source: &'a B::Buffer,
    pub width: usize,
    pub target: &'a mut B::Buffer,
    pub target_width: usize,
    /// First column of the target.
    pub offset: usize,
    pub rows: usize,
}
