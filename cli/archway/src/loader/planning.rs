//! Settings → what a plan depends on.

use engine::plan::{AllReduceChoice, FusionChoice, PlanRequest};

use crate::settings::{AllReduce, Fusion, Options};

/// The part of a plan request that the settings decide, whatever the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    tensor_parallel: usize,
    allreduce: AllReduceChoice,
    allreduce_prefill: AllReduceChoice,
    fusion: FusionChoice,
    strict: bool,
    allow_fallback: bool,
    max_message: Option<u64>,
    max_sequences: Option<usize>,
    max_rows: Option<usize>,
    context: Option<usize>,
    memory_fraction: Option<f64>,
}

/// Reads the choices out of the settings.
pub fn choices(options: &Options) -> Choices {
    Choices {
        tensor_parallel: options.tensor_parallel_size.unwrap_or(1) as usize,
        allreduce: allreduce(options.allreduce),
        allreduce_prefill: allreduce(options.allreduce_prefill),
        fusion: match options.fusion {
            None | Some(Fusion::Auto) => FusionChoice::Auto,
            Some(Fusion::Fused) => FusionChoice::Fused,
            Some(Fusion::Unfused) => FusionChoice::Unfused,
        },
        strict: options.strict.unwrap_or(false),
        allow_fallback: options.allow_fallback.unwrap_or(false),
        max_message: options.max_message.map(|bytes| bytes.0),
        max_sequences: options.max_num_seqs.map(|count| count as usize),
        max_rows: options.max_num_batched_tokens.map(|count| count.0 as usize),
        context: options.max_model_len.map(|count| count.0 as usize),
        memory_fraction: options.gpu_memory_utilization,
    }
}

fn allreduce(word: Option<AllReduce>) -> AllReduceChoice {
    match word {
        None | Some(AllReduce::Auto) => AllReduceChoice::Auto,
        Some(AllReduce::Nccl) => AllReduceChoice::Nccl,
        Some(AllReduce::OneShot) => AllReduceChoice::OneShot,
        Some(AllReduce::TwoShot) => AllReduceChoice::TwoShot,
        Some(AllReduce::Multimem) => AllReduceChoice::Multimem,
        Some(AllReduce::SymmetricMemory) => AllReduceChoice::SymmetricMemory,
    }
}

impl Choices {
    /// Lays the choices over a request with the engine's defaults.
    pub fn apply(self, request: PlanRequest) -> PlanRequest {
        PlanRequest {
            tensor_parallel: self.tensor_parallel,
            allreduce: self.allreduce,
            allreduce_prefill: self.allreduce_prefill,
            fusion: self.fusion,
            strict: self.strict,
            allow_fallback: self.allow_fallback,
            allreduce_max_message: self.max_message,
            max_sequences: self.max_sequences.unwrap_or(request.max_sequences),
            max_rows: self.max_rows.unwrap_or(request.max_rows),
            context: self.context.or(request.context),
            memory_fraction: self.memory_fraction.unwrap_or(request.memory_fraction),
            ..request
        }
    }
}
