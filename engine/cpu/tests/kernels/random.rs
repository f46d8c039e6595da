//! Random matrices in every format, the same on every machine. The comparison of GPU kernels takes this file, too.

use std::borrow::Cow;

use engine::weights::{TensorView, WeightType};
use half::{bf16, f16};

pub const KINDS: [WeightType; 11] = [
    WeightType::F32,
    WeightType::F16,
    WeightType::Bf16,
    WeightType::Q8_0,
    WeightType::Q4_0,
    WeightType::Q4_1,
    WeightType::Q5_0,
    WeightType::Q5_1,
    WeightType::Q4K,
    WeightType::Q5K,
    WeightType::Q6K,
];

/// A small generator (splitmix64): the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In -1..1.
    pub fn value(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }

    /// Rows of `columns` elements in the format: random codes under scales of a sensible size.
    pub fn matrix(&mut self, kind: WeightType, rows: usize, columns: usize) -> TensorView<'static> {
        let blocks = rows * columns / kind.block_elements();
        let mut bytes = Vec::with_capacity(blocks * kind.block_bytes());
        for _ in 0..blocks {
            self.block(kind, &mut bytes);
        }
        TensorView { kind, shape: vec![rows, columns], bytes: Cow::Owned(bytes) }
    }

    fn block(&mut self, kind: WeightType, bytes: &mut Vec<u8>) {
        match kind {
            WeightType::F32 => return bytes.extend(self.value().to_le_bytes()),
            WeightType::F16 => return bytes.extend(f16::from_f32(self.value()).to_le_bytes()),
            WeightType::Bf16 => return bytes.extend(bf16::from_f32(self.value()).to_le_bytes()),
            _ => {}
        }
        let start = bytes.len();
        bytes.extend((0..kind.block_bytes()).map(|_| (self.next() >> 56) as u8));
        let (scale, count) = match kind {
            WeightType::Q6K => (208, 1),
            WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4K | WeightType::Q5K => (0, 2),
            _ => (0, 1),
        };
        for at in 0..count {
            let value = f16::from_f32(self.value() * 0.05).to_le_bytes();
            bytes[start + scale + 2 * at..][..2].copy_from_slice(&value);
        }
    }
}
