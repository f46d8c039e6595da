//! What matrices in every format mean: written from the definitions, slow and plain.

use std::borrow::Cow;

use engine::{
    backend::MatrixPart,
    weights::{TensorView, WeightType},
};
use half::{bf16, f16};

pub fn whole(view: &TensorView<'_>) -> MatrixPart<'static> {
    let tensor = TensorView { kind: view.kind, shape: view.shape.clone(), bytes: Cow::Owned(view.bytes.to_vec()) };
    MatrixPart::whole(tensor)
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// A weight as the format has it: `scale * (code - zero) + offset`. Plain formats: the value itself, in `offset`.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    pub scale: f32,
    pub code: i32,
    pub offset: f32,
}

impl Weight {
    pub fn value(self) -> f32 {
        self.scale * self.code as f32 + self.offset
    }
}

/// All weights of a matrix, row by row.
pub fn weights(view: &TensorView<'_>) -> Vec<Weight> {
    view.bytes.chunks_exact(view.kind.block_bytes()).flat_map(|block| block_weights(view.kind, block)).collect()
}

fn block_weights(kind: WeightType, b: &[u8]) -> Vec<Weight> {
    let weight = |scale, code: u8, zero, offset| Weight { scale, code: i32::from(code) - zero, offset };
    let plain = |offset| vec![Weight { scale: 0.0, code: 0, offset }];
    let nibble = |bytes: &[u8], i: usize| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 };
    let fifth = |bytes: &[u8], i: usize| (u32::from_le_bytes(bytes[..4].try_into().unwrap()) >> i & 1) as u8 * 16;
    match kind {
        WeightType::F32 => plain(f32::from_le_bytes(b.try_into().unwrap())),
        WeightType::F16 => plain(half(b, 0)),
        WeightType::Bf16 => plain(bf16::from_le_bytes(b.try_into().unwrap()).to_f32()),
        WeightType::Q8_0 => {
            (0..32).map(|i| Weight { scale: half(b, 0), code: i32::from(b[2 + i] as i8), offset: 0.0 }).collect()
        }
        WeightType::Q4_0 => (0..32).map(|i| weight(half(b, 0), nibble(&b[2..], i), 8, 0.0)).collect(),
        WeightType::Q4_1 => (0..32).map(|i| weight(half(b, 0), nibble(&b[4..], i), 0, half(b, 2))).collect(),
        WeightType::Q5_0 => {
            (0..32).map(|i| weight(half(b, 0), nibble(&b[6..], i) + fifth(&b[2..], i), 16, 0.0)).collect()
        }
        WeightType::Q5_1 => {
            (0..32).map(|i| weight(half(b, 0), nibble(&b[8..], i) + fifth(&b[4..], i), 0, half(b, 2))).collect()
        }
        WeightType::Q4K => {
            (0..256).map(|i| nested(b, i, b[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15)).collect()
        }
        WeightType::Q5K => (0..256)
            .map(|i| {
                let low = b[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
                nested(b, i, low + (b[16 + i % 32] >> (i / 32) & 1) * 16)
            })
            .collect(),
        WeightType::Q6K => (0..256).map(|i| six_bits(b, i)).collect(),
        other => panic!("{other:?} is not a format of weights"),
    }
}

fn nested(b: &[u8], i: usize, code: u8) -> Weight {
    let (q, j) = (&b[4..16], i / 32);
    let (scale, minimum) = if j < 4 {
        (q[j] & 63, q[j + 4] & 63)
    } else {
        ((q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4)
    };
    let offset = -(half(b, 2) * f32::from(minimum));
    Weight { scale: half(b, 0) * f32::from(scale), code: i32::from(code), offset }
}

fn six_bits(b: &[u8], i: usize) -> Weight {
    let (part, quarter, l) = (i / 128, i % 128 / 32, i % 32);
    let low = b[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
    let high = b[128 + part * 32 + l] >> (2 * quarter) & 3;
    let scale = half(b, 208) * f32::from(b[192 + i / 16] as i8);
    Weight { scale, code: i32::from(low | high << 4) - 32, offset: 0.0 }
}
