//! Random inputs: those of the CPU kernels' tests, and what only a GPU takes.

#[path = "../../../cpu/tests/kernels/random.rs"]
mod shared;

use half::bf16;

pub use shared::{KINDS, Random};

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bf16(&mut self, count: usize) -> Vec<bf16> {
        (0..count).map(|_| bf16::from_f32(self.value())).collect()
    }
}

pub fn floats(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|value| value.to_f32()).collect()
}
