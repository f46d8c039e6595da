//! GGUF metadata into a [`ModelConfig`].
//!
//! Key names: `docs/gguf.md` of ggml and `gguf-py/gguf/constants.py` of llama.cpp. Which biases and norms exist, and
//! whether embeddings are tied, the metadata does not say; the tensors do.

mod experts;
mod rope;

use serde_json::{Map, Value};

use super::keys::{Keys, bounds};
use super::{ConfigError, LoadError};
use crate::model::{Activation, Attention, Family, LatentAttention, ModelConfig, QuantizationConfig};
use crate::weights::{GgufWeights, WeightSource, WeightType};

/// Text of control tokens that end a turn; instruction-tuned models emit one that is not their end of sequence.
const END_OF_TURN: [&str; 6] = ["<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>"];

/// Reads the configuration of an open GGUF file.
pub fn read_gguf_config(weights: &GgufWeights) -> Result<ModelConfig, LoadError> {
    let metadata = weights.metadata()?;
    let all = Keys::new(weights.path(), "", &metadata);
    let architecture = all.text("general.architecture")?.ok_or_else(|| all.missing("general.architecture"))?;
    // The keys of the architecture, without its name.
    let prefix = format!("{architecture}.");
    let own: Map<String, Value> = metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value.clone())))
        .collect();
    let reader = Reader { weights, all, keys: Keys::new(weights.path(), &prefix, &own), architecture };
    reader.read()
}

struct Reader<'a> {
    weights: &'a GgufWeights,
    all: Keys<'a>,
    keys: Keys<'a>,
    architecture: &'a str,
}

impl Reader<'_> {
    fn read(&self) -> Result<ModelConfig, LoadError> {
        let Self { weights, keys, architecture, .. } = self;
        let mut unserved = Vec::new();
        let moe = experts::read(keys, architecture)?;
        let family = self.family(moe.is_some(), &mut unserved);
        let layers = keys.size("block_count", bounds::LAYERS)?;
        let hidden = keys.size("embedding_length", bounds::WIDTH)?;
        let heads = keys.size("attention.head_count", bounds::HEADS)?;
        let vocabulary = self.vocabulary()?;
        let attention = self.attention(hidden, heads)?;
        let window = keys.optional_size("attention.sliding_window", bounds::CONTEXT)?;
        let context = keys.size("context_length", bounds::CONTEXT)?;
        Ok(ModelConfig {
            architecture: (*architecture).to_owned(),
            layers,
            hidden,
            heads,
            rope: rope::read(weights, keys, &attention, context, &mut unserved)?,
            attention,
            intermediate: keys.size("feed_forward_length", bounds::WIDTH)?,
            vocabulary,
            context: window.filter(|_| unserved.is_empty()).map_or(context, |window| context.min(window)),
            norm_epsilon: keys.optional_positive("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6),
            activation: Activation::Silu,
            mlp_bias: weights.contains("model.layers.0.mlp.up_proj.bias"),
            tied_embeddings: !weights.contains("lm_head.weight"),
            layer_kinds: experts::layer_kinds(keys, layers, moe.is_some())?,
            moe,
            dtype: "float16".to_owned(),
            quantization: quantization(weights),
            bos_token: self.all.tokens("tokenizer.ggml.bos_token_id", vocabulary)?.first().copied(),
            eos_tokens: self.end_tokens(vocabulary)?,
            family,
            unserved,
        })
    }

    fn family(&self, moe: bool, unserved: &mut Vec<String>) -> Family {
        let family = match self.architecture {
            "llama" if !moe => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            "qwen3moe" => Family::Qwen3Moe,
            other => Family::Other(other.to_owned()),
        };
        if let Family::Other(name) = &family {
            let experts = if moe { " with experts" } else { "" };
            unserved.push(format!("`general.architecture` is \"{name}\"{experts}; GGUF files of llama, qwen2, qwen3 and qwen3moe are served"));
        }
        family
    }

    /// The embedding's rows count; metadata that says otherwise contradicts it.
    fn vocabulary(&self) -> Result<usize, LoadError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let rows = self.weights.info("model.embed_tokens.weight").ok().and_then(|info| info.shape.first().copied());
        let said = self.keys.optional_size("vocab_size", bounds::VOCABULARY)?;
        match (rows, said) {
            (Some(rows), Some(said)) if rows != said => {
                let message = format!("is {said}, but `token_embd.weight` has {rows} rows");
                Err(self.keys.error("vocab_size", message).into())
            }
            (Some(rows), _) => match self.weights.length(TOKENS) {
                Some(tokens) if tokens > rows => Err(self
                    .all
                    .error(TOKENS, format_args!("has {tokens} tokens, but `token_embd.weight` has {rows} rows"))
                    .into()),
                _ => Ok(rows),
            },
            (None, Some(said)) => Ok(said),
            (None, None) => self.weights.length(TOKENS).ok_or_else(|| self.keys.missing("vocab_size").into()),
        }
    }

    fn attention(&self, hidden: usize, heads: usize) -> Result<Attention, ConfigError> {
        let keys = &self.keys;
        let rope_width = keys.optional_size("rope.dimension_count", bounds::HEAD_WIDTH)?;
        if keys.has("attention.kv_lora_rank") {
            return self.latent(rope_width);
        }
        let key_value_heads = keys.optional_size("attention.head_count_kv", bounds::HEADS)?.unwrap_or(heads);
        if !heads.is_multiple_of(key_value_heads) {
            let message = format!("is {key_value_heads}, which does not divide `attention.head_count`, {heads}");
            return Err(keys.error("attention.head_count_kv", message));
        }
        let head_dimension = match keys.optional_size("attention.key_length", bounds::HEAD_WIDTH)? {
            Some(dimension) => dimension,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let message =
                    format!("is missing, and `embedding_length`, {hidden}, is not a multiple of the {heads} heads");
                return Err(keys.error("attention.key_length", message));
            }
        };
        let value_dimension = keys.optional_size("attention.value_length", bounds::HEAD_WIDTH)?;
        if let Some(other) = value_dimension.filter(|other| *other != head_dimension) {
            let message = format!("is {other}, but keys have {head_dimension} dimensions; they must be equal");
            return Err(keys.error("attention.value_length", message));
        }
        if head_dimension % 2 == 1 {
            let message = format!("is {head_dimension}; rotary embedding needs an even number");
            return Err(keys.error("attention.key_length", message));
        }
        let layer = |part: &str| self.weights.contains(&format!("model.layers.0.self_attn.{part}"));
        let (bias, output_bias) = (layer("q_proj.bias"), layer("o_proj.bias"));
        Ok(Attention::Grouped {
            key_value_heads,
            head_dimension,
            query_key_norm: layer("q_norm.weight"),
            bias,
            output_bias,
        })
    }

    /// DeepSeek. Files made since 2025 give the heads' widths in `*_length_mla`; `key_length` is then the cache's.
    fn latent(&self, rope_width: Option<usize>) -> Result<Attention, ConfigError> {
        let keys = &self.keys;
        let width = |own: &str, old: &str| match keys.optional_size(own, bounds::HEAD_WIDTH)? {
            Some(width) => Ok(width),
            None => keys.size(old, bounds::HEAD_WIDTH),
        };
        let rope_head_dimension = rope_width.ok_or_else(|| keys.missing("rope.dimension_count"))?;
        let whole = width("attention.key_length_mla", "attention.key_length")?;
        let nope_head_dimension =
            whole.checked_sub(rope_head_dimension).filter(|width| *width > 0).ok_or_else(|| {
                keys.error(
                    "rope.dimension_count",
                    format_args!("is {rope_head_dimension}, but heads have {whole} dimensions"),
                )
            })?;
        Ok(Attention::Latent(LatentAttention {
            query_lora_rank: keys.optional_size("attention.q_lora_rank", bounds::WIDTH)?,
            key_value_lora_rank: keys.size("attention.kv_lora_rank", bounds::WIDTH)?,
            nope_head_dimension,
            rope_head_dimension,
            value_head_dimension: width("attention.value_length_mla", "attention.value_length")?,
        }))
    }

    /// End of sequence, of turn and of message: a GGUF file has no generation defaults that would list them.
    fn end_tokens(&self, vocabulary: usize) -> Result<Vec<u32>, LoadError> {
        let mut ends = Vec::new();
        for key in ["eos", "eot", "eom"] {
            ends.extend(self.all.tokens(&format!("tokenizer.ggml.{key}_token_id"), vocabulary)?);
        }
        let texts = self.weights.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        let named = texts.iter().enumerate().filter(|(_, text)| END_OF_TURN.contains(text));
        ends.extend(named.filter_map(|(id, _)| u32::try_from(id).ok()));
        let mut seen = std::collections::HashSet::new();
        ends.retain(|id| seen.insert(*id));
        Ok(ends)
    }
}

/// The block type that holds most bytes; `None` if all weights are plain.
fn quantization(weights: &GgufWeights) -> Option<QuantizationConfig> {
    let mut bytes: Vec<(WeightType, usize)> = Vec::new();
    for name in weights.names() {
        let Ok(info) = weights.info(&name) else { continue };
        let Some(size) = info.kind.size(&info.shape).filter(|_| info.kind.block_elements() > 1) else { continue };
        match bytes.iter_mut().find(|(kind, _)| *kind == info.kind) {
            Some((_, total)) => *total += size,
            None => bytes.push((info.kind, size)),
        }
    }
    let (kind, _) = bytes.into_iter().max_by_key(|(_, size)| *size)?;
    let (weight_bits, group) = match kind {
        WeightType::Q4_0 | WeightType::Q4_1 => (4, 32),
        WeightType::Q5_0 | WeightType::Q5_1 => (5, 32),
        WeightType::Q8_0 => (8, 32),
        WeightType::Q4K => (4, 32),
        WeightType::Q5K => (5, 32),
        WeightType::Q6K => (6, 16),
        WeightType::F32 | WeightType::F16 | WeightType::Bf16 | WeightType::I32 | WeightType::I64 | WeightType::Bool => {
            return None;
        }
    };
    Some(QuantizationConfig { method: "gguf".to_owned(), weight_bits, group: Some(group), ignored: Vec::new() })
}
