//! Tensor types of the format. Source: `enum ggml_type` and the block structures of ggml.

use crate::weights::WeightType;

/// A tensor type by its number in the file.
pub(super) struct Kind {
    pub name: &'static str,
    block_elements: usize,
    block_bytes: usize,
    pub readable: Option<WeightType>,
}

impl Kind {
    /// Bytes of a tensor. `None` where the last dimension is not a whole number of blocks or the size overflows.
    pub fn size(&self, shape: &[usize]) -> Option<usize> {
        let elements = shape.iter().try_fold(1usize, |product, side| product.checked_mul(*side))?;
        let row = shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(self.block_elements) {
            return None;
        }
        (elements / self.block_elements).checked_mul(self.block_bytes)
    }
}

/// The type with this number, `None` if no known version of the format has it.
pub(super) fn kind(number: u32) -> Option<Kind> {
    let readable = |name, kind: WeightType| {
        let (block_elements, block_bytes) = (kind.block_elements(), kind.block_bytes());
        Some(Kind { name, block_elements, block_bytes, readable: Some(kind) })
    };
    let other = |name, block_elements, block_bytes| Some(Kind { name, block_elements, block_bytes, readable: None });
    match number {
        0 => readable("F32", WeightType::F32),
        1 => readable("F16", WeightType::F16),
        2 => readable("Q4_0", WeightType::Q4_0),
        3 => readable("Q4_1", WeightType::Q4_1),
        6 => readable("Q5_0", WeightType::Q5_0),
        7 => readable("Q5_1", WeightType::Q5_1),
        8 => readable("Q8_0", WeightType::Q8_0),
        9 => other("Q8_1", 32, 36),
        10 => other("Q2_K", 256, 84),
        11 => other("Q3_K", 256, 110),
        12 => readable("Q4_K", WeightType::Q4K),
        13 => readable("Q5_K", WeightType::Q5K),
        14 => readable("Q6_K", WeightType::Q6K),
        15 => other("Q8_K", 256, 292),
        16 => other("IQ2_XXS", 256, 66),
        17 => other("IQ2_XS", 256, 74),
        18 => other("IQ3_XXS", 256, 98),
        19 => other("IQ1_S", 256, 50),
        20 => other("IQ4_NL", 32, 18),
        21 => other("IQ3_S", 256, 110),
        22 => other("IQ2_S", 256, 82),
        23 => other("IQ4_XS", 256, 136),
        24 => other("I8", 1, 1),
        25 => other("I16", 1, 2),
        26 => readable("I32", WeightType::I32),
        27 => readable("I64", WeightType::I64),
        28 => other("F64", 1, 8),
        29 => other("IQ1_M", 256, 56),
        30 => readable("BF16", WeightType::Bf16),
        34 => other("TQ1_0", 256, 54),
        35 => other("TQ2_0", 256, 66),
        39 => other("MXFP4", 32, 17),
        40 => other("NVFP4", 64, 36),
        41 => other("Q1_0", 128, 18),
        _ => None,
    }
}
