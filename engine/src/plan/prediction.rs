//! What speculation should cost and need, before anything ran: from shapes and from the record's memory bandwidth.
//!
//! One sequence. A pass reads each weight that it needs once and meets at every site:
//! `decode = bytes / bandwidth + calls * meeting`; a verify pass reads the experts of all its tokens; a cycle adds the
//! draft passes. A meeting takes what the record's measured ladder says of its message. Every layer takes a time besides that no
//! bandwidth shortens: attention over a short context, and kernels that begin and end. Break-even is the cycle's time over a
//! decode's. Attention over long contexts and arithmetic are left out.

use serde::Serialize;

use capdb::record::Dtype;

use super::machine::{GpuMachine, Machine};
use super::memory::{active_bytes, rank_weights};
use super::request::{AllReduceChoice, PlanRequest};

/// Seconds of a small all-reduce that goes through the host's bus with NCCL, for where the record has no measured times.
/// Kernels that write to their peers directly take a fraction.
const MEETING_NCCL: f64 = 60e-6;
const MEETING_DIRECT: f64 = 10e-6;

/// Part of the record's bandwidth at which weights of a pass are read; what a layer, and a draft pass with its embedding, layer,
/// head and choice, take besides; and what the host adds to a step, and to a cycle. From steps of 1B and 8B shapes on one and on
/// two H200 (docs/benchmarks.md); other devices are taken to be as slow.
const READ_SHARE: f64 = 0.9;
const LAYER: f64 = 15e-6;
const DRAFT_PASS: f64 = 60e-6;
const STEP: f64 = 20e-6;
const CYCLE: f64 = 60e-6;

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
        let meetings = Meetings::of(request, gpu, direct);
        let calls = 2 * request.config.layers + 2;
        let meeting =
            |tokens: usize, hidden: usize| meetings.seconds((tokens * hidden * request.activation_bytes) as u64);
        let rate = READ_SHARE * bandwidth;
        let layers = request.config.layers as f64 * LAYER;
        let pass = |tokens| {
            active_bytes(request, tokens) / rate + layers + calls as f64 * meeting(tokens, request.config.hidden)
        };
        let draft_bytes = shape.draft_bytes as f64 / ranks as f64;
        // Two sums, the embedding's and a gather of logits in each draft pass.
        let draft_pass = draft_bytes / rate + DRAFT_PASS + 4.0 * meeting(1, shape.draft_hidden);
        let draft_seconds = shape.steps as f64 * draft_pass;
        let (decode_seconds, verify_seconds) = (pass(1), pass(shape.verify_tokens));
        let mut assumptions = vec![format!(
            "one sequence, {:.0} GB/s of each device's memory, every weight read once a pass at {READ_SHARE} of it, {:.0} us \
             a layer and {:.0} us a draft pass besides",
            bandwidth / 1e9,
            1e6 * LAYER,
            1e6 * DRAFT_PASS
        )];
        assumptions.extend(meetings.basis().map(|basis| {
            format!(
                "{calls} meetings of the ranks in a pass: {:.1} us each in a decode, {:.1} in a verify, {basis}",
                1e6 * meeting(1, request.config.hidden),
                1e6 * meeting(shape.verify_tokens, request.config.hidden),
            )
        }));
        assumptions.push(format!(
            "a decode reads {:.2} GB a rank of {:.2} GB; a verify of {} tokens {:.2} GB{}",
            active_bytes(request, 1) / 1e9,
            rank_weights(request) as f64 / 1e9,
            shape.verify_tokens,
            active_bytes(request, shape.verify_tokens) / 1e9,
            if request.config.moe.is_some() { " (experts differ by token)" } else { "" }
        ));
        let break_even = (verify_seconds + draft_seconds + CYCLE) / (decode_seconds + STEP);
        Some(Self { decode_seconds, verify_seconds, draft_seconds, break_even, assumptions })
    }
}

/// What a meeting of the ranks takes.
enum Meetings {
    /// One rank meets nobody.
    None,
    /// Bytes of a message and seconds, ascending.
    Measured(Vec<(u64, f64)>),
    Assumed(f64),
}

impl Meetings {
    /// The measured times of the machine's ladder hold where the plan follows it.
    fn of(request: &PlanRequest, gpu: &GpuMachine, direct: bool) -> Self {
        if request.tensor_parallel == 1 {
            return Self::None;
        }
        let measured = Self::measured(request, gpu).filter(|_| request.allreduce == AllReduceChoice::Auto);
        let assumed = if direct { MEETING_DIRECT } else { MEETING_NCCL };
        measured.map_or(Self::Assumed(assumed), Self::Measured)
    }

    fn measured(request: &PlanRequest, gpu: &GpuMachine) -> Option<Vec<(u64, f64)>> {
        let dtype = if request.activation_bytes == 4 { Dtype::F32 } else { Dtype::Bf16 };
        let topology = gpu.host.topology?;
        let ladder = gpu.resolved.allreduce().ok()?.preferred.into_iter().find(|ladder| {
            ladder.world_size as usize == request.tensor_parallel
                && ladder.topology == topology
                && ladder.dtype.is_none_or(|own| own == dtype)
        })?;
        let times = ladder.times.iter().map(|time| (time.bytes.bytes(), f64::from(time.nanoseconds) * 1e-9));
        Some(times.collect::<Vec<_>>()).filter(|times| !times.is_empty())
    }

    /// Between two measured sizes on the line that joins them; below the first as the first; above the last in
    /// proportion, since bandwidth decides there.
    fn seconds(&self, bytes: u64) -> f64 {
        let times = match self {
            Self::None => return 0.0,
            Self::Assumed(seconds) => return *seconds,
            Self::Measured(times) => times,
        };
        let above = times.iter().position(|(size, _)| bytes <= *size);
        match above {
            Some(0) => times[0].1,
            Some(at) => {
                let ((low, before), (high, after)) = (times[at - 1], times[at]);
                before + (after - before) * (bytes - low) as f64 / (high - low).max(1) as f64
            }
            None => times.last().map_or(0.0, |(size, seconds)| seconds * bytes as f64 / *size as f64),
        }
    }

    /// None where nobody meets.
    fn basis(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Measured(_) => Some("measured"),
            Self::Assumed(_) => Some("assumed and not measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Meetings;

    #[test]
    fn times_between_measured_sizes_are_on_the_line_between_them() {
        let meetings = Meetings::Measured(vec![(1000, 2.0), (2000, 4.0), (4000, 5.0)]);
        let found: Vec<f64> = [1, 1000, 1500, 2000, 3000, 8000].map(|bytes| meetings.seconds(bytes)).to_vec();
        assert_eq!(found, [2.0, 2.0, 3.0, 4.0, 4.5, 10.0]);
        assert_eq!((Meetings::None.seconds(9), Meetings::Assumed(0.5).seconds(9)), (0.0, 0.5));
    }
}
