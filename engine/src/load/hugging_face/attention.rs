//! Heads, biases and windows.

use super::{ConfigError, Keys, bounds};
use crate::model::{Attention, Family, LatentAttention};

pub(super) fn read(
    keys: &Keys,
    family: &Family,
    model_type: &str,
    hidden: usize,
    heads: usize,
    unserved: &mut Vec<String>,
) -> Result<Attention, ConfigError> {
    let bias = keys.flag("attention_bias")?;
    if keys.has("kv_lora_rank") {
        if bias == Some(true) {
            unserved.push("`attention_bias` is true; latent attention is served without biases".to_owned());
        }
        return latent(keys).map(Attention::Latent);
    }
    if *family == Family::DeepseekV3 {
        return Err(keys.missing("kv_lora_rank"));
    }
    let key_value_heads = keys.optional_size("num_key_value_heads", bounds::HEADS)?.unwrap_or(heads);
    if !heads.is_multiple_of(key_value_heads) {
        let message = format!("is {key_value_heads}, which does not divide `num_attention_heads`, {heads}");
        return Err(keys.error("num_key_value_heads", message));
    }
    let (bias, output_bias) = biases(model_type, bias);
    Ok(Attention::Grouped {
        key_value_heads,
        head_dimension: head_dimension(keys, hidden, heads)?,
        query_key_norm: match model_type {
            "qwen3" | "qwen3_moe" => true,
            _ => keys.flag("use_qk_norm")?.unwrap_or(false),
        },
        bias,
        output_bias,
    })
}

/// Biases of (query, key, value) and of the output projection. The Qwen2 classes hard-code theirs, Mistral's have none.
fn biases(model_type: &str, attention_bias: Option<bool>) -> (bool, bool) {
    let asked = attention_bias.unwrap_or(false);
    match model_type {
        "qwen2" | "qwen2_moe" => (true, false),
        "mistral" | "mixtral" => (false, false),
        "glm4_moe" => (asked, false),
        _ => (asked, asked),
    }
}

fn head_dimension(keys: &Keys, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    let dimension = match keys.optional_size("head_dim", bounds::HEAD_WIDTH)? {
        Some(dimension) => dimension,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let message = format!("is missing, and `hidden_size`, {hidden}, is not a multiple of the {heads} heads");
            return Err(keys.error("head_dim", message));
        }
    };
    if dimension % 2 == 1 {
        return Err(keys.error("head_dim", format_args!("is {dimension}; rotary embedding needs an even number")));
    }
    Ok(dimension)
}

fn latent(keys: &Keys) -> Result<LatentAttention, ConfigError> {
    let attention = LatentAttention {
        query_lora_rank: keys.optional_size("q_lora_rank", bounds::WIDTH)?,
        key_value_lora_rank: keys.size("kv_lora_rank", bounds::WIDTH)?,
        nope_head_dimension: keys.size("qk_nope_head_dim", bounds::HEAD_WIDTH)?,
        rope_head_dimension: keys.size("qk_rope_head_dim", bounds::HEAD_WIDTH)?,
        value_head_dimension: keys.size("v_head_dim", bounds::HEAD_WIDTH)?,
    };
    if attention.rope_head_dimension % 2 == 1 {
        let message = format!("is {}; rotary embedding needs an even number", attention.rope_head_dimension);
        return Err(keys.error("qk_rope_head_dim", message));
    }
    let sum = attention.nope_head_dimension + attention.rope_head_dimension;
    match keys.optional_size("qk_head_dim", bounds::HEAD_WIDTH)? {
        Some(total) if total != sum => {
            Err(keys
                .error("qk_head_dim", format_args!("is {total}, but `qk_nope_head_dim` + `qk_rope_head_dim` is {sum}")))
        }
        _ => Ok(attention),
    }
}

/// Attention here sees the whole sequence, so a model with a sliding window is right as far as its window reaches:
/// the context ends there.
pub(super) fn context(
    keys: &Keys,
    family: &Family,
    layers: usize,
    context: usize,
    unserved: &mut Vec<String>,
) -> Result<usize, ConfigError> {
    let types = keys.text_list("layer_types")?.unwrap_or_default();
    if !types.is_empty() && types.len() != layers {
        let message = format!("has {} entries, but `num_hidden_layers` is {layers}", types.len());
        return Err(keys.error("layer_types", message));
    }
    if let Family::Other(_) = family {
        return Ok(context);
    }
    if let Some(other) = types.iter().find(|name| !["full_attention", "sliding_attention"].contains(name)) {
        unserved.push(format!("`layer_types` holds \"{other}\"; full and sliding attention are served"));
    }
    let window = keys.optional_size("sliding_window", bounds::CONTEXT)?;
    // Qwen configurations name a window that a second key switches on; per-layer types outrank both.
    let used = match keys.flag("use_sliding_window")? {
        _ if !types.is_empty() => types.contains(&"sliding_attention"),
        Some(used) => used,
        None => !matches!(family, Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe),
    };
    Ok(window.filter(|_| used).map_or(context, |window| context.min(window)))
}
