//! Operations that wait for the next one: two that follow each other in every layer become one launch.
//!
//! - a product, then the activation of all of its output: the gated product writes the activated columns alone;
//! - norms of query and key heads, rotation, append: one kernel reads the projected row once.
//!
//! What waits is launched as soon as something else comes ([`CudaBackend::flush`]), so results are as if nothing had
//! waited, but for outputs that only the merged operation read.

use cudarc::driver::sys::CUdeviceptr;
use engine::backend::Blocks;
use engine::weights::WeightType;

use crate::kernels::Angles;

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
    Product(ProductCall),
    /// Norms of the first blocks, and of those that follow them.
    Norms(NormCall, Option<NormCall>),
    Rotation(Option<(NormCall, NormCall)>, RotateCall),
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
