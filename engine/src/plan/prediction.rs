//! What speculation should cost and need, before anything ran: from shapes and from the record's memory bandwidth.
//!
//! One sequence. A pass reads each weight that it needs once and meets at every site:
//! `decode = bytes / bandwidth + calls * meeting`; a verify pass reads the experts of all its tokens; a cycle adds the
//! draft passes. Break-even is the cycle's time over a decode's. Launch costs, attention over long contexts and
//! arithmetic are left out, so it is a floor for times; the ratio is what it is for.

use serde::Serialize;

use super::machine::Machine;
use super::memory::{active_bytes, rank_weights};
use super::request::PlanRequest;

/// Seconds of a small all-reduce that go through the host's bus with NCCL on so many ranks: assumed, since the database
/// has no measured latency. Kernels that write to their peers directly take a fraction.
const MEETING_NCCL: f64 = 60e-6;
const MEETING_DIRECT: f64 = 10e-6;

/// Predicted times and break-even of speculation at batch 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub decode_seconds: f64,
    pub verify_seconds: f64,
    /// All draft passes of a cycle.
    pub draft_seconds: f64,
    /// Tokens per verify at which speculation costs as much as plain decoding.
    pub break_even: f64,
    /// What it rests on.
    pub assumptions: Vec<String>,
}

impl Prediction {
    /// None without speculation, or where the record has no bandwidth. `direct`: the plan's small all-reduces go from
    /// peer to peer.
    pub(super) fn of(request: &PlanRequest, direct: bool) -> Option<Self> {
        let (shape, Machine::Gpu(gpu)) = (request.speculation?, &request.machine) else { return None };
        let bandwidth = gpu.bandwidth?;
        let ranks = request.tensor_parallel;
        let meeting = match (ranks, direct) {
            (1, _) => 0.0,
            (_, true) => MEETING_DIRECT,
            (_, false) => MEETING_NCCL,
        };
        let calls = 2 * request.config.layers + 2;
        let pass = |tokens| active_bytes(request, tokens) / bandwidth + calls as f64 * meeting;
        let draft_bytes = shape.draft_bytes as f64 / ranks as f64;
        // Two sums, the embedding's and a gather of logits in each draft pass.
        let draft_seconds = shape.steps as f64 * (draft_bytes / bandwidth + 4.0 * meeting);
        let (decode_seconds, verify_seconds) = (pass(1), pass(shape.verify_tokens));
        let assumptions = vec![
            format!("one sequence, {:.0} GB/s of each device's memory, every weight read once a pass", bandwidth / 1e9),
            format!(
                "{calls} meetings of the ranks in a pass at {:.0} us each, assumed and not measured",
                meeting * 1e6
            ),
            format!(
                "a decode reads {:.2} GB a rank of {:.2} GB; a verify of {} tokens {:.2} GB (experts differ by token)",
                active_bytes(request, 1) / 1e9,
                rank_weights(request) as f64 / 1e9,
                shape.verify_tokens,
                active_bytes(request, shape.verify_tokens) / 1e9
            ),
        ];
        let break_even = (verify_seconds + draft_seconds) / decode_seconds;
        Some(Self { decode_seconds, verify_seconds, draft_seconds, break_even, assumptions })
    }
}
