//! Types of stored elements.

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

impl std::fmt::Display for WeightType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::Bool => "BOOL",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        })
    }
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

    /// Bytes that a tensor of `shape` takes. `None` where the last dimension is not a whole number of blocks, a tensor
    /// of blocks has no dimension, or the size overflows.
    pub fn size(self, shape: &[usize]) -> Option<usize> {
        let elements = shape.iter().try_fold(1usize, |product, side| product.checked_mul(*side))?;
        let row = shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }
}
