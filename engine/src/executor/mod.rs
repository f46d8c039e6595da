//! The seam between scheduling (integers) and computing (tensors, devices, ranks).

mod ranks;

pub use ranks::{LoadProgress, RankFactory, RanksConfig, RanksExecutor, Speculation, StartError};

use crate::types::{Batch, StepOutput};

/// What an executor can hold. Fixed once it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Key-value pages on every rank.
    pub pages: u32,
    /// Token positions in a page.
    pub page_size: u32,
    /// Sequences that run at once.
    pub slots: u32,
    /// Input rows of one step.
    pub rows: u32,
    /// Longest sequence, prompt and output together.
    pub context: u32,
    pub vocabulary: u32,
}

/// Why a step produced nothing. The sequences of the step are lost; the executor says whether it can go on.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExecutorError {
    /// Names rank, site and step where known.
    pub message: String,
    /// No further step can run: the server goes to 503.
    pub fatal: bool,
}

/// Runs steps on every rank and samples. Split in two so that the next step is prepared while a device works.
pub trait Executor: Send {
    fn capacity(&self) -> Capacity;

    /// Most steps in flight. Where it is 2, a step can be submitted before the one in flight is collected, with tokens that
    /// that one is going to choose ([`crate::types::chosen`]); a device then goes from one to the other by itself.
    fn depth(&self) -> usize {
        1
    }

    /// Starts a step. Returns before a device has finished.
    fn submit(&mut self, batch: Batch) -> Result<(), ExecutorError>;

    /// Waits for the first step in flight and returns its output.
    fn collect(&mut self) -> Result<StepOutput, ExecutorError>;
}
