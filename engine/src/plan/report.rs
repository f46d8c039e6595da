//! The plan as data: printed at start, served at `GET /plan`, read by programs.

use serde::{Serialize, Serializer};

use super::memory::MemoryPlan;
use super::prediction::Prediction;
use super::tuning::TuningReport;
use crate::collective::{Operation, Site};
use crate::spec::DraftShape;
use crate::types::Phase;

/// How a plan, or one site of it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanVerdict {
    Selected,
    Fallback,
    Refused,
}

/// The whole plan.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub verdict: PlanVerdict,
    /// Why it refuses; each says what to do. Empty otherwise.
    pub refusals: Vec<String>,
    /// What works but deserves a look.
    pub warnings: Vec<String>,
    pub model: ModelReport,
    pub machine: MachineReport,
    pub tensor_parallel: usize,
    pub memory: MemoryPlan,
    pub kernels: Vec<KernelLine>,
    /// The tuning that the ladders come from; none where the record alone was asked.
    pub tuning: Option<TuningReport>,
    /// The draft model; none without speculation, or where only its sizes were given.
    pub draft: Option<DraftReport>,
    /// What speculation should need to pay; none without it, or where the record has no bandwidth.
    pub prediction: Option<Prediction>,
    pub sites: Vec<SiteReport>,
}

/// A draft model as it was read.
#[derive(Clone, Debug, Serialize)]
pub struct DraftReport {
    pub path: String,
    /// Residual-stream boundaries of the target that it reads.
    pub taps: Vec<usize>,
    /// How they were found.
    pub taps_rule: String,
    pub draft_vocabulary: usize,
    pub shape: DraftShape,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    pub name: String,
    pub architecture: String,
    /// Whether the engine has a forward pass for the family.
    pub servable: bool,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub vocabulary: usize,
    pub context: usize,
    pub parameters: u64,
    pub dtype: String,
    pub quantization: Option<String>,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    Cpu,
    Gpu,
}

#[derive(Clone, Debug, Serialize)]
pub struct MachineReport {
    pub kind: MachineKind,
    /// Id of the database record.
    pub record: Option<String>,
    pub arch: Option<String>,
    pub name: String,
    pub count: usize,
    pub topology: Option<&'static str>,
    pub multicast: Option<bool>,
    /// Facts that nobody checked on the machine.
    pub assumed: Vec<String>,
    pub data_version: Option<String>,
}

/// Which kernel does a job, and how well the record says it is supported.
#[derive(Clone, Debug, Serialize)]
pub struct KernelLine {
    pub operation: String,
    pub kernel: String,
    pub support: String,
    /// File and line of the record.
    pub at: String,
}

/// One collective site in one phase.
#[derive(Clone, Debug, Serialize)]
pub struct SiteReport {
    #[serde(serialize_with = "operation_name")]
    pub operation: Operation,
    #[serde(serialize_with = "site_name")]
    pub site: Site,
    #[serde(serialize_with = "phase_name")]
    pub phase: Phase,
    /// Calls in one step.
    pub calls: usize,
    /// Rows of the message that is judged: one sequence's step, or the largest prefill step.
    pub rows: usize,
    /// Its bytes per rank.
    pub message_bytes: u64,
    pub verdict: PlanVerdict,
    pub algorithm: Option<String>,
    pub fusion: String,
    /// What `auto` takes.
    pub nearest: Option<String>,
    pub reasons: Vec<ReasonReport>,
    pub rejected: Vec<RejectedReport>,
    /// What every message of the phase takes, up to the largest step.
    pub ladder: Vec<RungReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonReport {
    pub reason: String,
    pub class: String,
    /// File and line, or the fact, flag or switch.
    pub at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RejectedReport {
    pub algorithm: String,
    pub reasons: Vec<ReasonReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RungReport {
    pub up_to_rows: usize,
    /// Inclusive.
    pub up_to_bytes: u64,
    pub algorithm: String,
    pub fusion: String,
}

fn operation_name<S: Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.name())
}

fn site_name<S: Serializer>(site: &Site, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(site.name())
}

fn phase_name<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(phase.name())
}
