//! What a plan is made for: all of it given, nothing read from the machine.

use capdb::record::AlgorithmId;

use super::machine::Machine;
use super::report::DraftReport;
use super::tuning::TuningReport;
use crate::model::ModelConfig;

/// Which all-reduce the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllReduceChoice {
    #[default]
    Auto,
    Nccl,
    OneShot,
    TwoShot,
    Multimem,
    /// Any algorithm whose buffers live in symmetric memory.
    SymmetricMemory,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FusionChoice {
    #[default]
    Auto,
    Fused,
    Unfused,
}

/// Width of speculation, for planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculationShape {
    /// Tokens of a verify pass, root included.
    pub verify_tokens: usize,
    /// Draft passes of a cycle.
    pub steps: usize,
    /// Hidden size of the draft model.
    pub draft_hidden: usize,
    pub draft_vocabulary: usize,
    /// Weights of the draft model in bytes, over all ranks.
    pub draft_bytes: u64,
    /// One token in the draft model's cache, over all ranks.
    pub draft_cache_bytes: u64,
}

/// Everything that a plan depends on.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// As the user named it, for display.
    pub model_name: String,
    pub config: ModelConfig,
    /// Bytes of the weights where the files are there; otherwise they are counted from the shapes.
    pub weight_bytes: Option<u64>,
    pub machine: Machine,
    pub tensor_parallel: usize,
    pub allreduce: AllReduceChoice,
    /// Prefill follows the ladder unless it is asked for by name.
    pub allreduce_prefill: AllReduceChoice,
    /// `Fused` binds decode, verify and draft steps; prefill is fused as far as its ladder goes.
    pub fusion: FusionChoice,
    pub strict: bool,
    pub allow_fallback: bool,
    /// The user's limit on messages in bytes.
    pub allreduce_max_message: Option<u64>,
    /// Input rows of one step: the largest prefill message.
    pub max_rows: usize,
    pub max_sequences: usize,
    pub context: Option<usize>,
    /// Bytes of one element of activations and messages.
    pub activation_bytes: usize,
    /// Bytes of one element of the key-value cache.
    pub cache_bytes: usize,
    /// Share of the device's memory that the engine may use.
    pub memory_fraction: f64,
    pub speculation: Option<SpeculationShape>,
    /// The head that was opened, for display.
    pub draft: Option<DraftReport>,
    /// The tuning that is laid over the machine's record.
    pub tuning: Option<TuningReport>,
    /// What was asked for and this machine has no use for, each a sentence that begins with the flag.
    pub unused: Vec<String>,
}

impl PlanRequest {
    /// A request with the engine's defaults.
    pub fn new(model_name: impl Into<String>, config: ModelConfig, machine: Machine) -> Self {
        Self {
            model_name: model_name.into(),
            config,
            weight_bytes: None,
            machine,
            tensor_parallel: 1,
            allreduce: AllReduceChoice::Auto,
            allreduce_prefill: AllReduceChoice::Auto,
            fusion: FusionChoice::Auto,
            strict: false,
            allow_fallback: false,
            allreduce_max_message: None,
            max_rows: 2048,
            max_sequences: 256,
            context: None,
            activation_bytes: 2,
            cache_bytes: 2,
            memory_fraction: 0.9,
            speculation: None,
            draft: None,
            tuning: None,
            unused: Vec::new(),
        }
    }
}

impl AllReduceChoice {
    pub(super) fn request(self) -> capdb::decide::AllReduceRequest {
        use capdb::decide::AllReduceRequest;
        match self {
            Self::Auto => AllReduceRequest::Auto,
            Self::Nccl => AllReduceRequest::Algorithm(AlgorithmId::Nccl),
            Self::OneShot => AllReduceRequest::Algorithm(AlgorithmId::OneShot),
            Self::TwoShot => AllReduceRequest::Algorithm(AlgorithmId::TwoShot),
            Self::Multimem => AllReduceRequest::Algorithm(AlgorithmId::Multimem),
            Self::SymmetricMemory => AllReduceRequest::SymmetricMemory,
        }
    }
}

impl FusionChoice {
    pub(super) fn request(self) -> capdb::decide::FusionRequest {
        match self {
            Self::Auto => capdb::decide::FusionRequest::Auto,
            Self::Fused => capdb::decide::FusionRequest::Fused,
            Self::Unfused => capdb::decide::FusionRequest::Unfused,
        }
    }
}
