//! Memory of one rank, counted from shapes: weights, key-value pages, activations, and what is left.

use serde::Serialize;

use super::request::{PlanRequest, SpeculationShape};
use crate::backend::CacheLayout;
use crate::model::{Attention, LayerKind, ModelConfig, QuantizationConfig, Share, cache_layout};
use crate::spec::BACKLOG_STEPS;

/// Token positions of a page.
pub(super) const PAGE_SIZE: usize = 16;
/// Context, modules, library handles and graphs of one GPU process, in bytes. Seen on Hopper: 0.5 to 0.9 GB.
const DEVICE_OVERHEAD: u64 = 900 << 20;

/// Layers whose outputs a draft model reads. Heads that name others are rare, and all that are known name three.
const TAPS: usize = 3;
/// Width of a draft model's MLP over that of the model: more than those of known heads.
const MLP_FACTOR: usize = 4;

/// Bytes of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Memory of one device (CPU: of the machine, shared by the ranks); `None` where the database does not say.
    pub device: Option<u64>,
    /// What the engine may use of it.
    pub usable: Option<u64>,
    pub weights: u64,
    pub draft_weights: u64,
    /// Activations of the largest step, logits included.
    pub activations: u64,
    /// Buffers of collectives.
    pub workspace: u64,
    /// Context and libraries of a GPU process.
    pub overhead: u64,
    pub cache_bytes_per_token: u64,
    /// Key-value pages of 16 tokens that fit; 0 when nothing is left.
    pub pages: u64,
    /// Tokens that fit in those pages.
    pub cache_tokens: u64,
    /// Pages that one sequence of the full context needs.
    pub pages_for_context: u64,
}

impl MemoryPlan {
    /// `workspace`: bytes of one rank's buffers for collectives.
    pub(super) fn of(request: &PlanRequest, device: Option<u64>, is_gpu: bool, workspace: u64) -> Self {
        let config = &request.config;
        let ranks = request.tensor_parallel;
        let weights = rank_weights(request);
        let draft_weights = request.speculation.map_or(0, |shape| shape.draft_bytes.div_ceil(ranks as u64));
        let activations = activations(request);
        let overhead = if is_gpu { DEVICE_OVERHEAD } else { 0 };
        let draft_cache = request.speculation.map_or(0, |shape| shape.draft_cache_bytes.div_ceil(ranks as u64));
        let cache_bytes_per_token = cache_bytes_per_token(config, ranks, request.cache_bytes) + draft_cache;
        // On a CPU the ranks share one memory, so each gets its part of it.
        let share = if is_gpu { 1 } else { ranks as u64 };
        let usable = device.map(|bytes| (bytes as f64 * request.memory_fraction) as u64 / share);
        let taken = weights + draft_weights + activations + workspace + overhead;
        let page_bytes = (cache_bytes_per_token * PAGE_SIZE as u64).max(1);
        let pages = usable.map_or(0, |usable| usable.saturating_sub(taken) / page_bytes);
        let context = request.context.unwrap_or(config.context).max(1);
        Self {
            device,
            usable,
            weights,
            draft_weights,
            activations,
            workspace,
            overhead,
            cache_bytes_per_token,
            pages,
            cache_tokens: pages * PAGE_SIZE as u64,
            pages_for_context: context.div_ceil(PAGE_SIZE) as u64,
        }
    }

    /// Everything but the pages, in bytes.
    pub fn fixed(&self) -> u64 {
        self.weights + self.draft_weights + self.activations + self.workspace + self.overhead
    }
}

pub(super) fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// Weights of one module kind, whole model.
struct Part {
    parameters: u64,
    /// Word that names its modules in a checkpoint's list of modules that stay plain.
    module: &'static str,
    /// Every rank holds all of it.
    replicated: bool,
    linear: bool,
}

/// Parameters of the whole model.
pub fn parameters(config: &ModelConfig) -> u64 {
    parts(config, 1).iter().map(|part| part.parameters).sum()
}

fn parts(config: &ModelConfig, ranks: usize) -> Vec<Part> {
    let linear =
        |parameters: usize, module| Part { parameters: parameters as u64, module, replicated: false, linear: true };
    let hidden = config.hidden;
    let mut parts = vec![Part {
        parameters: (config.vocabulary * hidden) as u64,
        module: "embed_tokens",
        replicated: false,
        linear: false,
    }];
    if !config.tied_embeddings {
        parts.push(linear(config.vocabulary * hidden, "lm_head"));
    }
    parts.extend(attention_parts(config, ranks));
    let dense = config.layer_kinds.iter().filter(|kind| **kind == LayerKind::Dense).count();
    parts.push(linear(dense * 3 * hidden * config.intermediate, "mlp.gate_proj"));
    if let Some(moe) = &config.moe {
        let layers = config.layers - dense;
        parts.push(linear(layers * moe.experts * 3 * hidden * moe.intermediate, "experts"));
        parts.push(linear(layers * moe.shared_experts * 3 * hidden * moe.shared_intermediate, "shared_experts"));
        parts.push(Part {
            parameters: (layers * moe.experts * hidden) as u64,
            module: "mlp.gate",
            replicated: true,
            linear: false,
        });
    }
    parts.push(Part {
        parameters: ((2 * config.layers + 1) * hidden) as u64,
        module: "norm",
        replicated: true,
        linear: false,
    });
    parts
}

fn attention_parts(config: &ModelConfig, ranks: usize) -> Vec<Part> {
    let (layers, hidden, heads) = (config.layers, config.hidden, config.heads);
    let part = |parameters: usize, replicated| Part {
        parameters: (layers * parameters) as u64,
        module: "self_attn",
        replicated,
        linear: true,
    };
    match &config.attention {
        Attention::Grouped { key_value_heads, head_dimension, .. } => {
            let query = 2 * hidden * heads * head_dimension;
            // Fewer key-value heads than ranks: each rank holds a copy of the one that it needs.
            let copies = key_value_heads.max(&ranks) * 2 * hidden * head_dimension;
            vec![part(query, false), part(copies, false)]
        }
        Attention::Latent(latent) => {
            let head = latent.nope_head_dimension + latent.rope_head_dimension;
            let query = match latent.query_lora_rank {
                Some(rank) => vec![part(hidden * rank, true), part(rank * heads * head, false)],
                None => vec![part(hidden * heads * head, false)],
            };
            let down = part(hidden * (latent.key_value_lora_rank + latent.rope_head_dimension), true);
            let up = part(
                latent.key_value_lora_rank * heads * (latent.nope_head_dimension + latent.value_head_dimension),
                false,
            );
            let output = part(heads * latent.value_head_dimension * hidden, false);
            query.into_iter().chain([down, up, output]).collect()
        }
    }
}

/// Bytes of one rank's weights: from the files' size where they are there, else from the shapes.
pub(super) fn rank_weights(request: &PlanRequest) -> u64 {
    let (sharded, replicated) = counted_weights(request);
    let ranks = request.tensor_parallel as u64;
    match request.weight_bytes {
        Some(total) => total.saturating_sub(replicated).div_ceil(ranks) + replicated.min(total),
        None => sharded.div_ceil(ranks) + replicated,
    }
}

/// Bytes from the shapes: those of which each rank holds a part, over all ranks, and those that each holds whole.
fn counted_weights(request: &PlanRequest) -> (u64, u64) {
    let counted = parts(&request.config, request.tensor_parallel);
    let bytes = |replicated: bool| -> u64 {
        let own = counted.iter().filter(|part| part.replicated == replicated);
        own.map(|part| part_bytes(part, &request.config, request.activation_bytes)).sum()
    };
    (bytes(false), bytes(true))
}

/// Bytes of one rank's weights that a pass over so many tokens of one sequence reads: of the experts those that the
/// tokens choose, as if each chose at random. Files that are larger or smaller than their shapes say are so in every part.
pub(super) fn active_bytes(request: &PlanRequest, tokens: usize) -> f64 {
    let config = &request.config;
    let (sharded, replicated) = counted_weights(request);
    let shapes = sharded as f64 / request.tensor_parallel as f64 + replicated as f64;
    let scale = request.weight_bytes.map_or(1.0, |_| rank_weights(request) as f64 / shapes.max(1.0));
    let counted = parts(config, request.tensor_parallel);
    let bytes = counted.iter().map(|part| {
        let share = if part.replicated { 1.0 } else { 1.0 / request.tensor_parallel as f64 };
        let used = match (&config.moe, part.module) {
            (Some(moe), "experts") => {
                let missed = 1.0 - moe.experts_per_token as f64 / moe.experts as f64;
                1.0 - missed.powi(tokens as i32)
            }
            // Rows of the embedding are looked up.
            (_, "embed_tokens") if !config.tied_embeddings => 0.0,
            _ => 1.0,
        };
        part_bytes(part, config, request.activation_bytes) as f64 * share * used
    });
    scale * bytes.sum::<f64>()
}

fn part_bytes(part: &Part, config: &ModelConfig, plain: usize) -> u64 {
    match &config.quantization {
        Some(quantization) if part.linear && !stays_plain(quantization, part.module) => {
            // One 16-bit scale for each group, or one for each row where no group is named.
            let scale_bits = quantization.group.map_or(0.0, |group| 16.0 / group.max(1) as f64);
            (part.parameters as f64 * (quantization.weight_bits as f64 + scale_bits) / 8.0) as u64
        }
        _ => part.parameters * plain as u64,
    }
}

/// Whether the checkpoint keeps modules with this word in their name in the plain data type.
fn stays_plain(quantization: &QuantizationConfig, module: &str) -> bool {
    quantization.ignored.iter().any(|pattern| {
        let pattern = pattern.replace("\\.", ".");
        if module == "experts" {
            pattern.contains("experts") && !pattern.contains("shared_experts")
        } else {
            pattern.contains(module) || module.starts_with("mlp.gate_") && pattern.contains("mlp.(gate")
        }
    })
}

/// Bytes of one token in one rank's key-value cache.
fn cache_bytes_per_token(config: &ModelConfig, ranks: usize, element: usize) -> u64 {
    let width = match widest_layout(config, ranks) {
        CacheLayout::KeyValue { heads, head_dimension } => 2 * heads * head_dimension,
        CacheLayout::Latent { latent, rope } => latent + rope,
    };
    (config.layers * width * element) as u64
}

/// The layout of the rank that keeps most: ranks differ where their query heads straddle key-value heads.
fn widest_layout(config: &ModelConfig, ranks: usize) -> CacheLayout {
    let layouts = (0..ranks.min(config.heads)).map(|rank| cache_layout(config, Share { rank, world_size: ranks }));
    let heads = |layout: &CacheLayout| if let CacheLayout::KeyValue { heads, .. } = layout { *heads } else { 0 };
    layouts.max_by_key(heads).unwrap_or_else(|| cache_layout(config, Share { rank: 0, world_size: 1 }))
}

/// The largest step's buffers: residual, normed, query/key/value, gate and up, and logits of the sampled rows in f32; those of
/// a draft model beside them.
fn activations(request: &PlanRequest) -> u64 {
    let config = &request.config;
    let ranks = request.tensor_parallel;
    let widest = config.intermediate.max(config.moe.as_ref().map_or(0, |moe| moe.experts_per_token * moe.intermediate));
    let row = (4 * config.hidden + (2 * widest + 3 * config.hidden) / ranks) * request.activation_bytes;
    let draft = request.speculation.map_or(0, |shape| draft_activations(&shape, request));
    (request.max_rows * row + request.max_sequences * config.vocabulary * 4) as u64 + draft
}

/// The draft model's (`crate::spec::model`): features of a step's rows, as the target gives them and as they are picked, and of
/// rows that wait; seven values as wide as the model, and a rank's share of attention's and of an MLP of four times its width.
fn draft_activations(shape: &SpeculationShape, request: &PlanRequest) -> u64 {
    let (features, hidden, sequences) = (TAPS * request.config.hidden, shape.draft_hidden, request.max_sequences);
    let row = 2 * features + 7 * hidden + (hidden + 3 * MLP_FACTOR * hidden) / request.tensor_parallel;
    let waiting = request.max_rows.min(BACKLOG_STEPS * sequences) * features;
    let elements = request.max_rows * row + waiting + 2 * sequences * hidden;
    (elements * request.activation_bytes + sequences * shape.draft_vocabulary * 4) as u64
}
