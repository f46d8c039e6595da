//! Every place where ranks meet, in every phase, with the decision for its messages.

use capdb::decide::{Decision, ReasonLine, Request, Shape, Verdict, decide, explain};
use capdb::record::{Dtype, FusionId};

use super::machine::{GpuMachine, Machine};
use super::report::{PlanVerdict, ReasonReport, RejectedReport, RungReport, SiteReport};
use super::request::{AllReduceChoice, FusionChoice, PlanRequest};
use crate::collective::{NO_FUSION, Operation, Site, space};
use crate::types::Phase;

/// What rank threads of the CPU backend meet in.
pub(super) const CPU_ALGORITHM: &str = "shared_memory";

/// How ranks gather without NCCL.
const GATHER: &str = "one_shot";

/// Rows and calls of a phase.
struct Step {
    phase: Phase,
    /// Rows of the step that an explicit request must be met for.
    rows: usize,
    /// Rows of the largest step.
    largest: usize,
    allreduce: AllReduceChoice,
}

/// All sites of a model on a machine.
pub(super) fn sites(request: &PlanRequest) -> Vec<SiteReport> {
    if request.tensor_parallel == 1 {
        return Vec::new();
    }
    let mut reports = Vec::new();
    for step in steps(request) {
        let hidden = request.config.hidden;
        let mut add =
            |operation, site, calls, width| reports.push(report(request, &step, operation, site, calls, width));
        add(Operation::AllReduce, Site::AttentionOutput, request.config.layers, hidden);
        add(Operation::AllReduce, Site::MlpOutput, request.config.layers, hidden);
        add(Operation::AllReduce, Site::Embedding, 1, hidden);
        add(Operation::AllGather, Site::LogitsGather, 1, request.config.vocabulary.div_ceil(request.tensor_parallel));
    }
    if let Some(speculation) = request.speculation {
        // The pass over a prompt's committed rows is a draft pass too.
        let largest = request.max_rows.max(request.max_sequences * speculation.verify_tokens);
        let step = Step { phase: Phase::Draft, rows: 1, largest, allreduce: request.allreduce };
        let passes = speculation.verify_tokens.saturating_sub(1).max(1);
        let (hidden, vocabulary) = (speculation.draft_hidden, speculation.draft_vocabulary);
        let columns = vocabulary.div_ceil(request.tensor_parallel);
        for (operation, site, calls, width) in [
            (Operation::AllReduce, Site::Draft, 2 * passes, hidden),
            (Operation::AllReduce, Site::Embedding, passes, hidden),
            (Operation::AllGather, Site::LogitsGather, passes, columns),
        ] {
            reports.push(report(request, &step, operation, site, calls, width));
        }
    }
    reports
}

fn steps(request: &PlanRequest) -> Vec<Step> {
    let mut steps =
        vec![Step { phase: Phase::Decode, rows: 1, largest: request.max_sequences, allreduce: request.allreduce }];
    if let Some(speculation) = request.speculation {
        let rows = speculation.verify_tokens;
        steps.push(Step {
            phase: Phase::Verify,
            rows,
            largest: rows * request.max_sequences,
            allreduce: request.allreduce,
        });
    }
    steps.push(Step {
        phase: Phase::Prefill,
        rows: request.max_rows,
        largest: request.max_rows,
        allreduce: request.allreduce_prefill,
    });
    steps
}

fn report(
    request: &PlanRequest,
    step: &Step,
    operation: Operation,
    site: Site,
    calls: usize,
    width: usize,
) -> SiteReport {
    let row_bytes = width * element_bytes(request, operation);
    let base = SiteReport {
        operation,
        site,
        phase: step.phase,
        calls,
        rows: step.rows,
        message_bytes: (step.rows * row_bytes) as u64,
        verdict: PlanVerdict::Selected,
        algorithm: Some(CPU_ALGORITHM.to_owned()),
        fusion: NO_FUSION.to_owned(),
        nearest: None,
        reasons: Vec::new(),
        rejected: Vec::new(),
        ladder: vec![RungReport {
            up_to_rows: step.largest,
            up_to_bytes: u64::MAX,
            algorithm: CPU_ALGORITHM.to_owned(),
            fusion: NO_FUSION.to_owned(),
        }],
    };
    match &request.machine {
        Machine::Cpu(_) => base,
        Machine::Gpu(gpu) if operation == Operation::AllGather => gather(request, gpu, step, row_bytes, base),
        Machine::Gpu(gpu) => decided(request, gpu, step, site, row_bytes, base),
    }
}

/// Bytes of one value of a message: logits are f32 on every device.
fn element_bytes(request: &PlanRequest, operation: Operation) -> usize {
    if operation == Operation::AllGather { size_of::<f32>() } else { request.activation_bytes }
}

fn shape(request: &PlanRequest, row_bytes: usize, rows: usize) -> Shape {
    Shape {
        world_size: request.tensor_parallel as u32,
        dtype: if request.activation_bytes == 4 { Dtype::F32 } else { Dtype::Bf16 },
        message: Some((rows * row_bytes) as u64),
        fusion: FusionId::ResidualRmsnorm,
        heads: u32::try_from(request.config.heads).ok(),
        pipeline_parallel: 1,
        workspace: None,
    }
}

fn wish(request: &PlanRequest, step: &Step, fusion: FusionChoice) -> Request {
    Request {
        allreduce: step.allreduce.request(),
        fusion: fusion.request(),
        strict: request.strict,
        allow_fallback: request.allow_fallback,
        max_message: request.allreduce_max_message,
    }
}

/// A gather goes straight to the peers where a sum of as many bytes would, and through NCCL elsewhere. What was asked for
/// sums binds it only where that was NCCL, so a gather is never refused.
fn gather(request: &PlanRequest, gpu: &GpuMachine, step: &Step, row_bytes: usize, base: SiteReport) -> SiteReport {
    let allreduce = match step.allreduce {
        AllReduceChoice::Nccl => AllReduceChoice::Nccl,
        // The gather's kernel failed its test, or what it has in common with a sum's did.
        _ if gpu.is_struck(GATHER) => AllReduceChoice::Nccl,
        _ => AllReduceChoice::Auto,
    };
    let step = Step { allreduce, ..*step };
    let wish = Request { allow_fallback: true, ..wish(request, &step, FusionChoice::Unfused) };
    let ladder = ladder(&step, row_bytes, |rows| {
        let (algorithm, fusion) = choice(gpu, &shape(request, row_bytes, rows), &wish);
        (if algorithm == "nccl" { algorithm } else { GATHER }, fusion)
    });
    let first = ladder.iter().find(|rung| rung.up_to_rows >= step.rows);
    SiteReport { algorithm: first.map(|rung| rung.algorithm.clone()), ladder, ..base }
}

fn decided(
    request: &PlanRequest,
    gpu: &GpuMachine,
    step: &Step,
    site: Site,
    row_bytes: usize,
    base: SiteReport,
) -> SiteReport {
    let fusion = match (site, step.phase, request.fusion) {
        // The embedding's sum is followed by no residual, so there is nothing to fuse it with; the wish speaks of the others.
        (Site::Embedding, ..) => FusionChoice::Unfused,
        // A whole prompt's message is often larger than fused kernels take: the wish binds what the algorithm's binds.
        (_, Phase::Prefill, FusionChoice::Fused) => FusionChoice::Auto,
        (.., asked) => asked,
    };
    let too_wide = row_bytes as u64 > space::FUSED_ROW && fusion != FusionChoice::Unfused;
    let wish = wish(request, step, if too_wide { FusionChoice::Unfused } else { fusion });
    let judged = shape(request, row_bytes, step.rows);
    let decision = decide(&gpu.table, &gpu.host, &judged, &wish);
    let words = explain(&gpu.resolved, &gpu.host, &judged, &wish, &decision);
    let mut own = reasons(&words.reasons);
    if site == Site::Embedding && request.fusion != FusionChoice::Unfused || too_wide {
        own.retain(|reason| reason.reason != "disabled_by_user");
    }
    own.extend(too_wide.then(|| row_too_wide(row_bytes)));
    let refused = too_wide && fusion == FusionChoice::Fused && !request.allow_fallback;
    SiteReport {
        verdict: if refused { PlanVerdict::Refused } else { verdict(&decision) },
        algorithm: words.allreduce.map(str::to_owned),
        fusion: words.fusion.to_owned(),
        nearest: words.nearest.map(str::to_owned),
        reasons: own,
        rejected: words
            .rejected
            .iter()
            .map(|line| RejectedReport { algorithm: line.algorithm.to_owned(), reasons: reasons(&line.reasons) })
            .collect(),
        ladder: ladder(step, row_bytes, |rows| choice(gpu, &shape(request, row_bytes, rows), &wish)),
        ..base
    }
}

fn reasons(lines: &[ReasonLine]) -> Vec<ReasonReport> {
    let report = |line: &ReasonLine| ReasonReport {
        reason: line.reason.to_owned(),
        class: line.class.to_owned(),
        at: line.at.clone(),
    };
    lines.iter().map(report).collect()
}

/// Why a row is not summed and normalised in one kernel.
fn row_too_wide(row_bytes: usize) -> ReasonReport {
    let at = format!("a row of {row_bytes} bytes; fused kernels take {}", space::FUSED_ROW);
    ReasonReport { reason: "message_over_limit".to_owned(), class: "rule".to_owned(), at }
}

fn verdict(decision: &Decision) -> PlanVerdict {
    match decision.verdict {
        Verdict::Selected => PlanVerdict::Selected,
        Verdict::Fallback => PlanVerdict::Fallback,
        Verdict::Refused => PlanVerdict::Refused,
    }
}

/// Algorithm and fusion of one message size. A size that an explicit request cannot take goes down the ladder.
fn choice(gpu: &GpuMachine, shape: &Shape, wish: &Request) -> (&'static str, &'static str) {
    let decision = decide(&gpu.table, &gpu.host, shape, &Request { allow_fallback: true, ..*wish });
    (decision.algorithm.map_or("nccl", |id| id.word()), decision.fusion.map_or(NO_FUSION, |id| id.word()))
}

/// Asks for every number of rows that a step can have and joins equal neighbours.
fn ladder(step: &Step, row_bytes: usize, choose: impl Fn(usize) -> (&'static str, &'static str)) -> Vec<RungReport> {
    let mut rungs: Vec<RungReport> = Vec::new();
    for rows in 1..=step.largest {
        let (algorithm, fusion) = choose(rows);
        let up_to_bytes = (rows * row_bytes) as u64;
        match rungs.last_mut() {
            Some(last) if last.algorithm == algorithm && last.fusion == fusion => {
                (last.up_to_rows, last.up_to_bytes) = (rows, up_to_bytes)
            }
            _ => rungs.push(RungReport {
                up_to_rows: rows,
                up_to_bytes,
                algorithm: algorithm.to_owned(),
                fusion: fusion.to_owned(),
            }),
        }
    }
    rungs
}
