//! The decision: which all-reduce algorithm and which fusion a message takes on a machine, and why.
//!
//! `decide` is pure, does no I/O and allocates nothing. A record is compiled into a `Table` once; `explain` adds the words
//! and the places that people read.

mod algorithm;
mod explain;
mod facts;
mod fusion;
mod reason;
mod table;

pub use explain::{Explanation, ReasonLine, RejectedLine, explain};
pub use facts::{AllReduceRequest, FusionRequest, HostFacts, MULTICAST_SWITCHES, Probe, Request, Shape, Stack};
pub use reason::{Reason, Reasons};
pub use table::Table;

use crate::record::{AlgorithmId, FusionId};
use algorithm::{Rungs, Strikes, fused_rung, strikes, strikes_of};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The request was met, or `auto` took the first rung that order and rules give for this message.
    Selected,
    /// It works, but not with what this machine should have had.
    Fallback,
    /// The request cannot be met.
    Refused,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Selected => "selected",
            Self::Fallback => "fallback",
            Self::Refused => "refused",
        }
    }
}

/// What a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// `None` when there is nothing to reduce (one rank), or when refused.
    pub algorithm: Option<AlgorithmId>,
    pub fusion: Option<FusionId>,
    /// Everything that made the decision what it is: of the rungs passed over, of the chosen one, and of the fusion.
    pub reasons: Reasons,
    /// Those of `reasons` that say why there is no fused kernel.
    pub unfused: Reasons,
    /// Why each algorithm cannot take the message, in the order of `AlgorithmId::ALL`; empty for those that can.
    pub rejected: [Reasons; AlgorithmId::ALL.len()],
    /// What the request gets with `allreduce: auto, fusion: auto`. `None` for one rank, or where nothing runs.
    pub nearest: Option<AlgorithmId>,
}

/// Decides one message.
pub fn decide(table: &Table, host: &HostFacts, shape: &Shape, request: &Request) -> Decision {
    let nearest = decide_once(
        table,
        host,
        shape,
        &Request { allreduce: AllReduceRequest::Auto, fusion: FusionRequest::Auto, ..*request },
    );
    let auto = request.allreduce == AllReduceRequest::Auto && request.fusion == FusionRequest::Auto;
    let mut decision = if auto { nearest } else { decide_once(table, host, shape, request) };
    decision.nearest = nearest.algorithm;
    if decision.verdict == Verdict::Refused && request.allow_fallback && !decision.reasons.any_invalid() {
        let reasons = decision.reasons.union(nearest.reasons);
        let unfused = decision.unfused.union(nearest.unfused);
        decision = Decision {
            verdict: Verdict::Fallback,
            reasons,
            unfused,
            nearest: nearest.algorithm,
            rejected: decision.rejected,
            ..nearest
        };
    }
    decision
}

fn decide_once(table: &Table, host: &HostFacts, shape: &Shape, request: &Request) -> Decision {
    let invalid = invalid(host, shape);
    if !invalid.is_empty() {
        return refused(invalid, [invalid; AlgorithmId::ALL.len()]);
    }
    let stack = table.stack_strikes(host);
    if shape.world_size == 1 {
        return one_rank(stack, request);
    }
    let mut judged = [Strikes::default(); AlgorithmId::ALL.len()];
    for &id in AlgorithmId::ALL {
        judged[id as usize] = strikes(table, host, shape, request, id, stack);
    }
    let question = Question { table, host, shape, request, judged: &judged, stack };
    match request.allreduce {
        AllReduceRequest::Auto => auto(&question),
        AllReduceRequest::Algorithm(id) => explicit(&question, id),
        AllReduceRequest::SymmetricMemory => symmetric(&question),
    }
}

/// One question with what stands for and against each algorithm.
struct Question<'a> {
    table: &'a Table,
    host: &'a HostFacts,
    shape: &'a Shape,
    request: &'a Request,
    /// By `AlgorithmId`.
    judged: &'a [Strikes; AlgorithmId::ALL.len()],
    /// What strikes out every rung but NCCL.
    stack: Reasons,
}

impl Question<'_> {
    fn rejected(&self) -> [Reasons; AlgorithmId::ALL.len()] {
        self.judged.map(|strikes| strikes.reasons)
    }

    fn rungs(&self) -> Rungs {
        Rungs::of(self.table, self.host, self.shape, self.request)
    }

    fn fusion(&self, id: AlgorithmId) -> fusion::Choice {
        fusion::choose(self.table, self.host, self.shape, self.request, id)
    }
}

impl Question<'_> {
    /// The algorithm whose fused kernel is measured to be the fastest for the message, if it is another one than `id` and
    /// nothing strikes it out; with what must be said of it.
    fn faster_fused(&self, id: AlgorithmId) -> Option<(AlgorithmId, Reasons)> {
        let Self { table, host, shape, request, stack, .. } = *self;
        let (other, rung) = fused_rung(table, host, shape, request).filter(|(other, _)| *other != id)?;
        let Strikes { reasons, notes } = strikes_of(table, host, shape, request, (other, Some(rung)), stack);
        (reasons.is_empty() && self.fusion(other).id.is_some()).then_some((other, notes))
    }
}

/// What makes a request impossible under every choice.
fn invalid(host: &HostFacts, shape: &Shape) -> Reasons {
    let mut reasons = Reasons::NONE;
    if shape.heads.is_some_and(|heads| heads % shape.world_size != 0) {
        reasons = reasons.with(Reason::HeadsNotDivisible);
    }
    let needed = shape.world_size.div_ceil(host.nodes.unwrap_or(1).max(1));
    if host.visible_gpus.is_some_and(|visible| visible < needed) {
        reasons = reasons.with(Reason::TooFewGpus);
    }
    reasons
}

/// One rank has nothing to reduce, so every all-reduce request is met and no fusion is.
fn one_rank(stack: Reasons, request: &Request) -> Decision {
    let rejected = [Reasons::NONE; AlgorithmId::ALL.len()];
    let nothing = |verdict, reasons| Decision { verdict, ..refused(reasons, rejected) };
    let plain = matches!(request.allreduce, AllReduceRequest::Auto | AllReduceRequest::Algorithm(AlgorithmId::Nccl));
    if request.fusion == FusionRequest::Fused {
        return refused(stack.with(Reason::FusionNotListed), rejected);
    }
    let user =
        if request.fusion == FusionRequest::Unfused { Reasons::of(Reason::DisabledByUser) } else { Reasons::NONE };
    match (stack.is_empty(), request.allreduce) {
        (true, _) => nothing(Verdict::Selected, user),
        (false, AllReduceRequest::Auto) => nothing(Verdict::Fallback, stack.union(user)),
        (false, _) if plain => nothing(Verdict::Selected, user),
        (false, _) => refused(stack, rejected),
    }
}

fn refused(reasons: Reasons, rejected: [Reasons; AlgorithmId::ALL.len()]) -> Decision {
    let unfused = Reasons::NONE;
    Decision { verdict: Verdict::Refused, algorithm: None, fusion: None, reasons, unfused, rejected, nearest: None }
}

/// Walks the rungs and takes the first one that nothing strikes out; with `fusion: fused`, the first that can be fused.
fn auto(question: &Question<'_>) -> Decision {
    let rejected = question.rejected();
    // A stack that strikes out every rung but NCCL is a fallback even where a rule would have led to NCCL as well.
    let (mut reasons, mut unfused) = (question.stack, Reasons::NONE);
    let mut gap = !reasons.is_empty();
    for id in question.rungs().iter() {
        let Strikes { reasons: against, notes } = question.judged[id as usize];
        // Nothing is below NCCL, so it is taken even when something stands against it; then that must be said.
        let last = id == AlgorithmId::Nccl;
        let strike = if last { Reasons::NONE } else { against };
        let fused = question.fusion(id);
        let wanted = question.request.fusion == FusionRequest::Fused && fused.id.is_none();
        let unfit = if wanted { fused.reasons } else { Reasons::NONE };
        if strike.is_empty() && unfit.is_empty() {
            // One kernel for both is chosen as a whole: the faster of those that fuse, whatever sums faster alone.
            let instead = fused.id.and_then(|_| question.faster_fused(id));
            let (id, notes) = instead.unwrap_or((id, notes));
            let own = if last { notes.union(against) } else { notes };
            let verdict = if gap { Verdict::Fallback } else { Verdict::Selected };
            let reasons = reasons.union(own).union(fused.reasons);
            let unfused = fused.against();
            return Decision {
                verdict,
                algorithm: Some(id),
                fusion: fused.id,
                reasons,
                unfused,
                rejected,
                nearest: None,
            };
        }
        let all = strike.union(unfit);
        gap |= all.all_gaps();
        reasons = reasons.union(all);
        unfused = unfused.union(unfit);
    }
    Decision { unfused, ..refused(reasons, rejected) }
}

/// A request for one algorithm: met by it, or refused with every reason that holds.
fn explicit(question: &Question<'_>, id: AlgorithmId) -> Decision {
    let Strikes { reasons: against, notes } = question.judged[id as usize];
    let rejected = question.rejected();
    if !against.is_empty() {
        return refused(against, rejected);
    }
    let fused = question.fusion(id);
    if question.request.fusion == FusionRequest::Fused && fused.id.is_none() {
        return Decision { unfused: fused.reasons, ..refused(fused.reasons, rejected) };
    }
    let (reasons, unfused) = (notes.union(fused.reasons), fused.against());
    let verdict = Verdict::Selected;
    Decision { verdict, algorithm: Some(id), fusion: fused.id, reasons, unfused, rejected, nearest: None }
}

/// A request for any algorithm whose buffers live in symmetric memory.
fn symmetric(question: &Question<'_>) -> Decision {
    let rungs = question.rungs();
    let mut reasons = Reasons::NONE;
    let order = rungs.iter().chain(AlgorithmId::ALL.iter().copied().filter(|id| !rungs.contains(*id)));
    for id in order.filter(|id| id.is_symmetric()) {
        let decision = explicit(question, id);
        if decision.verdict != Verdict::Refused {
            return Decision { reasons: decision.reasons.union(reasons), ..decision };
        }
        reasons = reasons.union(decision.reasons);
    }
    refused(reasons, question.rejected())
}

#[cfg(test)]
mod tests;
