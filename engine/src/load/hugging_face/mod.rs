//! `config.json` of Hugging Face checkpoints into a [`ModelConfig`].
//!
//! Defaults are those of the configuration classes in Hugging Face transformers. Keys that decide the size of
//! anything have no default: a file without them is refused.

mod attention;
mod experts;
mod quantization;
pub(crate) mod rope;

use serde_json::{Map, Value};

use super::keys::{Keys, bounds};
use super::{ConfigError, LoadError, json_object};
use crate::model::{Activation, Family, ModelConfig};

/// Reads the text of a `config.json`; `path` is for messages.
pub fn parse_config(path: &str, text: &str) -> Result<ModelConfig, LoadError> {
    Ok(read_root(path, &json_object(path, text)?)?)
}

/// A multimodal checkpoint keeps its language model's keys in `text_config`; keys that only the root has still hold.
fn read_root(path: &str, root: &Map<String, Value>) -> Result<ModelConfig, ConfigError> {
    let outer = Keys::new(path, "", root);
    let Some(nested) = outer.object("text_config")?.filter(|_| !outer.has("num_hidden_layers")) else {
        return read_model(&outer, &outer);
    };
    let mut config = read_model(&Keys::new(path, "text_config.", nested), &outer)?;
    if let Some(name) = outer.text_list("architectures")?.and_then(|names| names.first().copied()) {
        config.architecture = name.to_owned();
    }
    Ok(config)
}

/// `keys` are the language model's, `outer` the file's (the same object unless nested).
fn read_model(keys: &Keys, outer: &Keys) -> Result<ModelConfig, ConfigError> {
    let model_type = keys.text("model_type")?.ok_or_else(|| keys.missing("model_type"))?;
    let family = family(model_type);
    let mut unserved = Vec::new();
    let architecture = architecture(keys, model_type, &family, &mut unserved)?;
    let layers = keys.size("num_hidden_layers", bounds::LAYERS)?;
    let hidden = keys.size("hidden_size", bounds::WIDTH)?;
    let heads = keys.size("num_attention_heads", bounds::HEADS)?;
    let vocabulary = keys.size("vocab_size", bounds::VOCABULARY)?;
    let attention = attention::read(keys, &family, model_type, hidden, heads, &mut unserved)?;
    let trained = keys.size("max_position_embeddings", bounds::CONTEXT)?;
    let rope = rope::read(keys, model_type, &attention, trained, &mut unserved)?;
    let context = attention::context(keys, &family, layers, rope::context(&rope, trained), &mut unserved)?;
    let moe = experts::read(keys, model_type)?;
    let quantization = quantization::read(keys, outer, &mut unserved)?;
    let nested_or_outer = |key: &str| if keys.has(key) { *keys } else { *outer };
    Ok(ModelConfig {
        layers,
        hidden,
        heads,
        attention,
        intermediate: keys.size("intermediate_size", bounds::WIDTH)?,
        vocabulary,
        context,
        norm_epsilon: keys.optional_positive("rms_norm_eps")?.unwrap_or(1e-6),
        rope,
        activation: activation(keys, &mut unserved)?,
        mlp_bias: keys.flag("mlp_bias")?.unwrap_or(false),
        tied_embeddings: nested_or_outer("tie_word_embeddings").flag("tie_word_embeddings")?.unwrap_or(false),
        layer_kinds: experts::layer_kinds(keys, layers, moe.is_some())?,
        moe,
        dtype: dtype(keys, outer)?,
        quantization,
        bos_token: nested_or_outer("bos_token_id").tokens("bos_token_id", vocabulary)?.first().copied(),
        eos_tokens: nested_or_outer("eos_token_id").tokens("eos_token_id", vocabulary)?,
        family,
        architecture,
        unserved,
    })
}

/// Families by `model_type`. Mistral is Llama with a sliding window; Kimi K2 is DeepSeek V3 with other numbers.
fn family(model_type: &str) -> Family {
    match model_type {
        "llama" | "mistral" => Family::Llama,
        "qwen2" => Family::Qwen2,
        "qwen3" => Family::Qwen3,
        "qwen3_moe" => Family::Qwen3Moe,
        "deepseek_v3" | "kimi_k2" => Family::DeepseekV3,
        other => Family::Other(other.to_owned()),
    }
}

/// The class name for display. A family we know under a class we do not know (a draft head, a classifier) has a
/// known shape, but another forward pass.
fn architecture(
    keys: &Keys,
    model_type: &str,
    family: &Family,
    unserved: &mut Vec<String>,
) -> Result<String, ConfigError> {
    if let Family::Other(_) = family {
        unserved.push(format!("`model_type` is \"{model_type}\", a family without a forward pass here"));
    }
    let Some(name) = keys.text_list("architectures")?.and_then(|names| names.first().copied()) else {
        return Ok(model_type.to_owned());
    };
    let known: &[&str] = match family {
        Family::Llama => &["LlamaForCausalLM", "MistralForCausalLM"],
        Family::Qwen2 => &["Qwen2ForCausalLM"],
        Family::Qwen3 => &["Qwen3ForCausalLM"],
        Family::Qwen3Moe => &["Qwen3MoeForCausalLM"],
        Family::DeepseekV3 => &["DeepseekV3ForCausalLM"],
        Family::Other(_) => return Ok(name.to_owned()),
    };
    if !known.contains(&name) {
        unserved.push(format!(
            "`architectures` is \"{name}\"; of model type \"{model_type}\" {} is served",
            known.join(" or ")
        ));
    }
    Ok(name.to_owned())
}

fn activation(keys: &Keys, unserved: &mut Vec<String>) -> Result<Activation, ConfigError> {
    let name = match keys.text("hidden_act")? {
        Some(name) => name,
        None => keys.text("hidden_activation")?.unwrap_or("silu"),
    };
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        other => {
            unserved.push(format!("`hidden_act` is \"{other}\"; \"silu\" and \"gelu\" are served"));
            Ok(Activation::Silu)
        }
    }
}

/// Checkpoints before 2025 say `torch_dtype`; transformers takes a missing key as float32.
fn dtype(keys: &Keys, outer: &Keys) -> Result<String, ConfigError> {
    const KNOWN: [&str; 4] = ["bfloat16", "float16", "float32", "float64"];
    for (keys, key) in [(keys, "dtype"), (keys, "torch_dtype"), (outer, "dtype"), (outer, "torch_dtype")] {
        let Some(name) = keys.text(key)? else { continue };
        let name = name.strip_prefix("torch.").unwrap_or(name);
        if !KNOWN.contains(&name) {
            return Err(keys.error(key, format_args!("is \"{name}\", but must be one of {KNOWN:?}")));
        }
        return Ok(name.to_owned());
    }
    Ok("float32".to_owned())
}
