//! The seam between files and the model.

use std::borrow::Cow;

use super::{WeightError, WeightType};

/// What is known of a stored tensor without touching its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub kind: WeightType,
    /// Row-major, last dimension contiguous, e.g. `[out_features, in_features]` for a linear layer.
    pub shape: Vec<usize>,
}

/// A stored tensor: row-major, last dimension contiguous, e.g. `[out_features, in_features]` for a linear layer.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    pub kind: WeightType,
    pub shape: Vec<usize>,
    /// Exactly as many bytes as `kind` and `shape` need: borrowed from the file, or owned where rows had to be
    /// reordered or were generated. No alignment is promised.
    pub bytes: Cow<'a, [u8]>,
}

/// Named tensors under Hugging Face names (`model.layers.0.self_attn.q_proj.weight`), with Hugging Face's row order
/// (GGUF files of Llama models store permuted query and key rows; the reader undoes that).
pub trait WeightSource: Send + Sync {
    fn names(&self) -> Vec<String>;

    /// Type and shape of a tensor, for those whose shape no configuration tells.
    fn info(&self, name: &str) -> Result<TensorInfo, WeightError>;

    /// A tensor by name, without copying where the file allows it. The caller states the shape that its
    /// configuration needs: a file that disagrees is a [`WeightError::Shape`], and random weights are made to measure.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError>;
}
