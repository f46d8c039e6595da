//! A decision in words: every reason with its class and the place that it comes from.

use serde::Serialize;

use super::facts::{HostFacts, Request, Shape};
use super::reason::{Reason, Reasons};
use super::{Decision, Verdict};
use crate::record::{AlgorithmId, FusionId};
use crate::resolve::Resolved;

/// A reason with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonLine {
    pub reason: &'static str,
    pub class: &'static str,
    /// File and line of the value, or which fact, flag or switch it is.
    pub at: String,
}

/// An algorithm that cannot take the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectedLine {
    pub algorithm: &'static str,
    pub reasons: Vec<ReasonLine>,
}

/// The form of `explain --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub verdict: &'static str,
    /// `none` where one rank has nothing to reduce; null when refused.
    pub allreduce: Option<&'static str>,
    /// `none`, or the id of the fused kernel.
    pub fusion: &'static str,
    /// `none` for one rank; null where nothing runs.
    pub nearest: Option<&'static str>,
    pub reasons: Vec<ReasonLine>,
    pub rejected: Vec<RejectedLine>,
}

/// Puts a decision into words.
pub fn explain(
    resolved: &Resolved,
    host: &HostFacts,
    shape: &Shape,
    request: &Request,
    decision: &Decision,
) -> Explanation {
    let places = Places { resolved, host, shape, request };
    let rejected: Vec<RejectedLine> = AlgorithmId::ALL
        .iter()
        .filter(|id| !decision.rejected[**id as usize].is_empty())
        .map(|id| RejectedLine {
            algorithm: id.word(),
            reasons: places.lines(decision.rejected[*id as usize], Some(*id), None),
        })
        .collect();
    let invalid = decision.reasons.any_invalid();
    let algorithm_word = |id: Option<AlgorithmId>| match id {
        Some(id) => Some(id.word()),
        None if shape.world_size == 1 && !invalid => Some("none"),
        None => None,
    };
    let allreduce = if decision.verdict == Verdict::Refused { None } else { algorithm_word(decision.algorithm) };
    Explanation {
        verdict: decision.verdict.word(),
        allreduce,
        fusion: decision.fusion.map_or("none", FusionId::word),
        nearest: algorithm_word(decision.nearest),
        reasons: places.decisive(decision),
        rejected,
    }
}

struct Places<'a> {
    resolved: &'a Resolved,
    host: &'a HostFacts,
    shape: &'a Shape,
    request: &'a Request,
}

impl Places<'_> {
    /// The decisive reasons, each at what it speaks of: the fusion that there is not, an algorithm that it struck out, or the one
    /// that was taken. What struck out an algorithm stands among the rejected ones too.
    fn decisive(&self, decision: &Decision) -> Vec<ReasonLine> {
        let owner = |reason: Reason| {
            let struck = AlgorithmId::ALL.iter().copied().find(|id| decision.rejected[*id as usize].contains(reason));
            struck.or(decision.algorithm)
        };
        let line = |reason: Reason| {
            if decision.unfused.contains(reason) {
                return self.said(reason, self.at_fusion(reason));
            }
            self.line(reason, owner(reason), decision.algorithm.map(|_| self.shape.fusion))
        };
        decision.reasons.iter().map(line).collect()
    }

    fn lines(&self, reasons: Reasons, algorithm: Option<AlgorithmId>, fusion: Option<FusionId>) -> Vec<ReasonLine> {
        reasons.iter().map(|reason| self.line(reason, algorithm, fusion)).collect()
    }

    fn line(&self, reason: Reason, algorithm: Option<AlgorithmId>, fusion: Option<FusionId>) -> ReasonLine {
        self.said(reason, self.at(reason, algorithm, fusion))
    }

    fn said(&self, reason: Reason, at: String) -> ReasonLine {
        ReasonLine { reason: reason.word(), class: reason.class().word(), at }
    }

    /// Where the record says what stands against the fused kernel. The user's limit is one of algorithms.
    fn at_fusion(&self, reason: Reason) -> String {
        let (fused, world_size) = (format!("/fusions/{}", self.shape.fusion), self.shape.world_size);
        let keys = match reason {
            Reason::WorldSizeNotListed => vec!["world_sizes".to_owned(), "max_message".to_owned()],
            Reason::MessageOverLimit | Reason::ValueGuessed | Reason::ValueInherited => {
                vec![format!("max_message/{world_size}"), "support".to_owned()]
            }
            Reason::DtypeUnsupported => vec!["dtypes".to_owned()],
            Reason::TopologyNotListed => vec!["topologies".to_owned()],
            Reason::FactUnknown => vec!["support".to_owned()],
            _ => return self.at(reason, None, Some(self.shape.fusion)),
        };
        let pointers: Vec<String> = keys.into_iter().map(|key| format!("{fused}/{key}")).collect();
        self.record(&pointers, "fused kernel")
    }

    fn at(&self, reason: Reason, algorithm: Option<AlgorithmId>, fusion: Option<FusionId>) -> String {
        let block = algorithm.map_or_else(|| "/allreduce".to_owned(), |id| format!("/allreduce/{id}"));
        let fused = fusion.map_or_else(|| "/fusions".to_owned(), |id| format!("/fusions/{id}"));
        let world_size = self.shape.world_size;
        match reason {
            Reason::ArchEntryMissing => self.record(&[], "no record or no block"),
            Reason::NoMulticast
                if self.resolved.value.pointer("/features/multicast").is_some_and(|value| value == "absent") =>
            {
                self.record(&["/features/multicast".to_owned()], "features.multicast")
            }
            Reason::NoMulticast | Reason::MulticastDenied => "host fact multicast".to_owned(),
            Reason::NoPeerPath | Reason::P2pProbeFailed => self
                .host
                .topology
                .map_or("host fact peer access".to_owned(), |topology| format!("host fact topology {topology}")),
            Reason::FactUnknown => "host facts: topology or multicast not known".to_owned(),
            Reason::ToolkitTooOld => self.record(&["/compile/min_toolkit".to_owned()], "compile.min_toolkit"),
            Reason::DriverTooOld => self.record(&["/compile/min_driver".to_owned()], "stack.yaml"),
            Reason::KnownBadStack => "stack.yaml".to_owned(),
            Reason::TopologyNotListed => {
                self.record(&[format!("{block}/topologies"), format!("{fused}/topologies")], "order.yaml")
            }
            Reason::DisabledByEnvironment => "environment".to_owned(),
            Reason::SelfTestFailed => "self-test".to_owned(),
            Reason::WorldSizeNotListed => self.record(
                &[
                    format!("{block}/world_sizes"),
                    format!("{block}/max_message"),
                    "/allreduce/symmetric_memory/max_message".to_owned(),
                    format!("{fused}/world_sizes"),
                ],
                "world size",
            ),
            Reason::MessageOverLimit if self.request.max_message.is_some() => "request max_message".to_owned(),
            Reason::MessageOverLimit | Reason::ValueGuessed | Reason::ValueInherited => self.record(
                &[
                    format!("{block}/max_message/{world_size}"),
                    format!("/allreduce/symmetric_memory/max_message/{world_size}"),
                    format!("{block}/world_sizes"),
                    format!("{fused}/max_message/{world_size}"),
                    format!("{fused}/support"),
                ],
                "record",
            ),
            Reason::DtypeUnsupported => self.record(&[format!("{block}/dtypes"), format!("{fused}/dtypes")], "dtype"),
            Reason::FusionArchUnsupported | Reason::FusionNotListed => {
                self.record(&[format!("{fused}/support")], "no fused kernel with this algorithm")
            }
            Reason::DisabledByUser => "request".to_owned(),
            Reason::WorkspaceTooSmall => "workspace".to_owned(),
            Reason::PipelineParallel => "pipeline_parallel".to_owned(),
            Reason::MultiNode => "host fact nodes".to_owned(),
            Reason::NoBenefit => "measurement".to_owned(),
            Reason::HeadsNotDivisible => "model heads".to_owned(),
            Reason::TooFewGpus => "host fact visible GPUs".to_owned(),
        }
    }

    /// The first of the pointers that the record has, as file and line.
    fn record(&self, pointers: &[String], otherwise: &str) -> String {
        pointers
            .iter()
            .find_map(|pointer| self.resolved.origin(pointer))
            .map_or_else(|| otherwise.to_owned(), ToString::to_string)
    }
}
