//! Which fused kernel goes with an algorithm that was chosen.

use super::facts::{FusionRequest, HostFacts, Request, Shape};
use super::reason::{Reason, Reasons};
use super::table::{Row, Table};
use crate::record::{AlgorithmId, FusionId, Support};
use crate::resolve::Provenance;

/// A fused kernel or none, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub id: Option<FusionId>,
    pub reasons: Reasons,
}

impl Choice {
    /// Why there is none.
    pub fn against(&self) -> Reasons {
        if self.id.is_none() { self.reasons } else { Reasons::NONE }
    }
}

/// The fusion for a message that `algorithm` takes. Never changes what was chosen before.
pub(super) fn choose(
    table: &Table,
    host: &HostFacts,
    shape: &Shape,
    request: &Request,
    algorithm: AlgorithmId,
) -> Choice {
    let none = |reason| Choice { id: None, reasons: Reasons::of(reason) };
    if request.fusion == FusionRequest::Unfused {
        return none(Reason::DisabledByUser);
    }
    if !matches!(algorithm, AlgorithmId::OneShot | AlgorithmId::TwoShot) {
        // Between machines that no NVLink joins, nothing that could carry a fusion is a rung at all.
        let reasons = Reasons::of(Reason::FusionNotListed).when(host.spans_nodes(), Reason::MultiNode);
        return Choice { id: None, reasons };
    }
    let Some(row) = table.fusions[shape.fusion as usize].as_ref() else {
        return none(if table.known { Reason::FusionNotListed } else { Reason::ArchEntryMissing });
    };
    let (reasons, provenance) = judge(row, host, shape);
    let note = match provenance {
        Provenance::Known => Reasons::NONE,
        Provenance::Inherited => Reasons::of(Reason::ValueInherited),
        Provenance::Guessed => Reasons::of(Reason::ValueGuessed),
    };
    if !reasons.is_empty() {
        return Choice { id: None, reasons };
    }
    let trusted = !request.strict || note.is_empty();
    Choice { id: trusted.then_some(shape.fusion), reasons: note }
}

fn judge(row: &Row, host: &HostFacts, shape: &Shape) -> (Reasons, Provenance) {
    let unlisted_topology = host.topology.is_some_and(|topology| !row.lists_topology(topology));
    let limit = row.limits.as_ref().map(|limits| limits.get(shape.world_size));
    let over = matches!(limit, Some(Some(limit)) if shape.message.is_some_and(|message| message > limit.bytes));
    let listed = row.lists_world_size(shape.world_size) && !matches!(limit, Some(None));
    let reasons = Reasons::NONE
        .when(row.support == Support::Absent, Reason::FusionArchUnsupported)
        .when(row.support == Support::Probe, Reason::FactUnknown)
        .when(!listed, Reason::WorldSizeNotListed)
        .when(over, Reason::MessageOverLimit)
        .when(!row.lists_dtype(shape.dtype), Reason::DtypeUnsupported)
        .when(unlisted_topology, Reason::TopologyNotListed)
        // A stage boundary separates the sum from the norm that would follow it.
        .when(shape.pipeline_parallel > 1, Reason::PipelineParallel);
    let provenance = match limit {
        Some(Some(limit)) if limit.provenance != Provenance::Known => limit.provenance,
        _ => row.provenance,
    };
    (reasons, provenance)
}
