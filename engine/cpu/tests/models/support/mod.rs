mod generate;
mod golden;
mod random;
mod rig;

pub use generate::{Settings, generate, start};
pub use golden::{GOLDEN, Golden};
pub use random::RandomWeights;
pub use rig::{Chunk, Rig};

/// What f32 on another machine may differ by; transformers' own f32 differs from f64 by a third of it.
pub const TOLERANCE: f32 = 1e-4;

#[track_caller]
pub fn assert_close(actual: &[f32], expected: &[f32], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of values");
    let differences = actual.iter().zip(expected).map(|(actual, expected)| (actual - expected).abs());
    let (index, worst) = differences.enumerate().max_by(|left, right| left.1.total_cmp(&right.1)).expect("some values");
    assert!(worst <= TOLERANCE, "{what}: value {index} is {}, expected {}", actual[index], expected[index]);
}
