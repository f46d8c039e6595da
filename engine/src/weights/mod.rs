//! Model weights as named, typed byte ranges, whatever file they came from.

use std::borrow::Cow;

/// Element or block type of a stored tensor. Block formats are those of GGUF, laid out along the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightType {
    F32,
    F16,
    Bf16,
    I32,
    I64,
    Bool,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q4K,
    Q5K,
    Q6K,
}

impl WeightType {
    /// Elements in one block; 1 for plain types.
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::I32 | Self::I64 | Self::Bool => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block. Source: the `block_q*` structures of ggml.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I64 => 8,
            Self::Bool => 1,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }
}

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

/// Why a tensor cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The file has no such tensor; `near` are the most similar names.
    #[error("tensor `{name}` is missing{}", near_text(.near))]
    Missing { name: String, near: Vec<String> },
    #[error("tensor `{name}` has shape {actual:?}, the model needs {expected:?}")]
    Shape { name: String, actual: Vec<usize>, expected: Vec<usize> },
    #[error("tensor `{name}` has type {actual:?}, which {needed_for} cannot use")]
    Type { name: String, actual: WeightType, needed_for: &'static str },
    /// The file itself is damaged; says what was read where.
    #[error("{path}: {message}")]
    File { path: String, message: String },
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; the file has {}", near.join(", ")) }
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
