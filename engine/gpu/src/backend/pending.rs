//! Operations that wait for the next one: two that follow each other in every layer become one launch.
//!
//! - a product, then the activation of all of its output: the gated product writes the activated columns alone;
//! - a product, then a sum of all of its output with the residual stream: the product adds to it, and with bf16 weights
//!   begins the norm that follows;
//! - embedding, then a norm of all rows: the norm is begun where rows are stored, as a product does;
//! - a product of logits, then the choice of the largest: the product chooses;
//! - norms of query and key heads, rotation, append: one kernel reads the projected row once;
//! - rotation and append as above, then attention of the same rows: attention does both.
//!
//! What waits is launched as soon as something else comes ([`super::CudaBackend::ready`]), so results are as if nothing had
//! waited, but for outputs that only the merged operation read.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::Blocks;
use engine::weights::WeightType;

use crate::kernels::{Angles, Embed, Format, RotateAppend};

/// Rows up to which a matrix in blocks is multiplied as it is stored; above, it is cheaper to convert it once.
const STORED_ROWS: usize = 16;

/// Rows that a product normalises itself: with weights in blocks by reading `input` and `weight`, with bf16 weights by
/// multiplying its sums, where another product left `squares` and, as `input`, the rows times the weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormInput {
    pub input: CUdeviceptr,
    pub weight: CUdeviceptr,
    pub epsilon: f32,
    /// Which rows of the input, or of the squares, as the step says; 0 for the first ones.
    pub rows: CUdeviceptr,
    /// 0 where no product left any.
    pub squares: CUdeviceptr,
}

/// What a product adds to, and leaves for the products behind the norm of the sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub residual: CUdeviceptr,
    /// Of the norm.
    pub weight: CUdeviceptr,
    pub squares: CUdeviceptr,
}

/// A product of one run of rows, not launched yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductCall {
    pub weight: CUdeviceptr,
    pub kind: WeightType,
    /// In f32 and in bf16.
    pub bias: Option<[CUdeviceptr; 2]>,
    pub input: CUdeviceptr,
    pub output: CUdeviceptr,
    /// The output is f32.
    pub wide: bool,
    /// Rows of activations.
    pub rows: usize,
    pub columns: usize,
    /// Rows of the weight.
    pub outputs: usize,
    /// Elements from one row of the output to the next.
    pub stride: usize,
    /// Of the input, which is then the norm's.
    pub norm: Option<NormInput>,
    /// The product is added to the output.
    pub add: bool,
    /// The product is added to a residual stream, and the output is the sum times a norm's weight.
    pub sum: Option<Sum>,
}

impl ProductCall {
    /// The weight is multiplied as it is stored in blocks, by a kernel that can do more than the product.
    pub fn is_stored(&self) -> bool {
        takes_stored(self.kind, self.rows)
    }
}

/// Whether so many rows are multiplied with weights of this kind as they are stored in blocks.
pub(super) fn takes_stored(kind: WeightType, rows: usize) -> bool {
    kind != WeightType::Bf16 && rows <= STORED_ROWS
}

/// Rows of an embedding table.
#[derive(Clone, Copy, Debug)]
pub(super) struct EmbedCall {
    pub format: Format,
    pub embed: Embed,
}

/// A norm over blocks in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormCall {
    pub buffer: CUdeviceptr,
    pub blocks: Blocks,
    pub weight: CUdeviceptr,
    pub epsilon: f32,
    pub rows: usize,
}

/// A rotation in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotateCall {
    pub positions: CUdeviceptr,
    pub buffer: CUdeviceptr,
    pub angles: Angles,
    pub blocks: Blocks,
    pub rows: usize,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Pending {
    #[default]
    Nothing,
    Embed(EmbedCall),
    Product(ProductCall),
    /// Norms of the first blocks, and of those that follow them.
    Norms(NormCall, Option<NormCall>),
    Rotation(Option<(NormCall, NormCall)>, RotateCall),
    /// Norms, rotation and append of all of a step's rows.
    Appended(RotateAppend),
}

/// Whether two runs of blocks lie in the same rows, one after the other.
pub(super) fn adjacent(first: &Blocks, second: &Blocks) -> bool {
    first.row == second.row
        && first.stride == second.stride
        && first.width == second.width
        && second.offset == first.offset + first.count * first.stride
}

#[cfg(test)]
mod tests {
    use engine::backend::Blocks;

    use super::adjacent;

    #[test]
    fn keys_follow_queries() {
        let heads = |first: usize, count: usize| Blocks { row: 960, offset: first * 64, count, stride: 64, width: 64 };
        assert!(adjacent(&heads(0, 9), &heads(9, 3)));
        assert!(!adjacent(&heads(0, 9), &heads(12, 3)));
        assert!(!adjacent(&heads(0, 9), &Blocks { width: 32, ..heads(9, 3) }));
    }
}
