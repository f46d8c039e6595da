mod draft;
mod generate;
mod golden;
mod numbers;
mod quantised;
mod random;
mod rig;
mod serve;

use std::time::Duration;

use engine_cpu::kernels::Precision;
use engine_cpu::{CpuOptions, CpuRanks};

pub use draft::DraftRig;
pub use generate::{Generated, Settings, config, generate, start};
pub use golden::{GOLDEN, Golden, tokens};
pub use numbers::Numbers;
pub use quantised::QuantisedWeights;
pub use random::LoudWeights;
pub use rig::{Chunk, Rig};
pub use serve::{Output, Served, collect};

/// Ranks of one thread each, exact products, and time for a busy machine.
pub fn ranks(world_size: usize) -> CpuRanks {
    ranks_within(world_size, Duration::from_secs(30))
}

pub fn ranks_within(world_size: usize, deadline: Duration) -> CpuRanks {
    CpuRanks::new(CpuOptions { world_size, threads: Some(1), precision: Precision::Exact, deadline })
}

/// What f32 on another machine may differ by; transformers' own f32 differs from f64 by a third of it.
pub const TOLERANCE: f32 = 1e-4;

#[track_caller]
pub fn assert_close(actual: &[f32], expected: &[f32], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of values");
    let differences = actual.iter().zip(expected).map(|(actual, expected)| (actual - expected).abs());
    let (index, worst) = differences.enumerate().max_by(|left, right| left.1.total_cmp(&right.1)).expect("some values");
    assert!(worst <= TOLERANCE, "{what}: value {index} is {}, expected {}", actual[index], expected[index]);
}
