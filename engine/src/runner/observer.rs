//! Raw events behind a server's histograms. Times are in seconds.

use crate::types::{FinishReason, Usage};

/// How an output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Finished(FinishReason),
    /// The step that it was in failed.
    Failed,
}

/// The life of one output; a time that was never reached is None.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputTimes {
    pub outcome: Outcome,
    pub usage: Usage,
    /// From submission to first admission.
    pub queue: Option<f64>,
    /// From first admission to the first token.
    pub prefill: Option<f64>,
    /// From the first token to the last one.
    pub decode: Option<f64>,
    /// From submission to the end.
    pub end_to_end: f64,
}

/// Something that happened in the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observation {
    /// A step came back. `seconds` from its submission to the executor until its output was there.
    Step { prefill_rows: u32, decode_rows: u32, sequences: u32, seconds: f64 },
    /// From submission to the first token of an output.
    FirstToken { seconds: f64 },
    /// Between two events of one output; `tokens` came with the second one.
    InterToken { seconds: f64, tokens: u32 },
    /// Pages ran out and a sequence went back to the queue.
    Preemption,
    /// One verify entry.
    Speculation { drafted: u32, accepted: u32 },
    /// An output ended.
    Output(OutputTimes),
}

/// Receives observations on the engine's thread, so it must not block.
pub trait Observer: Send + Sync {
    fn observe(&self, observation: &Observation);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _: &Observation) {}
}
