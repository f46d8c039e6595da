//! Scalar conversion of stored elements to `f32`: the definition that every faster kernel is tested against.
//!
//! Layouts and order of operations are ggml's (`ggml-quants.c`, `dequantize_row_*`), so results are equal bit by bit.

mod blocks;
mod super_blocks;

use half::{bf16, f16};

pub use blocks::{q4_0, q4_1, q5_0, q5_1, q8_0};
pub use super_blocks::{q4_k, q5_k, q6_k};

use super::WeightType;

/// Converts as many elements as `bytes` holds whole blocks of and `out` has room for.
pub type Dequantise = fn(bytes: &[u8], out: &mut [f32]);

/// The conversion of a type; `None` for integers and truth values, which are not weights.
pub fn dequantise(kind: WeightType) -> Option<Dequantise> {
    Some(match kind {
        WeightType::F32 => plain_f32,
        WeightType::F16 => plain_f16,
        WeightType::Bf16 => plain_bf16,
        WeightType::Q8_0 => q8_0,
        WeightType::Q4_0 => q4_0,
        WeightType::Q4_1 => q4_1,
        WeightType::Q5_0 => q5_0,
        WeightType::Q5_1 => q5_1,
        WeightType::Q4K => q4_k,
        WeightType::Q5K => q5_k,
        WeightType::Q6K => q6_k,
        WeightType::I32 | WeightType::I64 | WeightType::Bool => return None,
    })
}

pub fn plain_f32(bytes: &[u8], out: &mut [f32]) {
    for (element, out) in bytes.as_chunks::<4>().0.iter().zip(out) {
        *out = f32::from_le_bytes(*element);
    }
}

pub fn plain_f16(bytes: &[u8], out: &mut [f32]) {
    for (element, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *out = f16::from_le_bytes(*element).to_f32();
    }
}

pub fn plain_bf16(bytes: &[u8], out: &mut [f32]) {
    for (element, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
        *out = bf16::from_le_bytes(*element).to_f32();
    }
}

/// The half-precision number at `at` of a block.
fn scale(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
