//! Llama, and those of the same layer under other names (SmolLM2, Mistral): grouped-query attention with rotary
//! positions, then a gated MLP, each after an RMS norm and added to the residual stream.

use std::rc::Rc;

use super::layers::{GroupedAttention, GroupedOptions, Mlp};
use super::{Attention, AttentionLayer, Layer, Loader, MlpLayer, ModelConfig, ModelError};
use crate::backend::Backend;

/// `load` stands at `model.layers.N`.
pub(super) fn layer<B: Backend>(load: &mut Loader<'_, B>, rope: Rc<B::Rope>) -> Result<Layer<B>, ModelError> {
    Ok(Layer {
        attention_norm: load.norm("input_layernorm", load.config.hidden)?,
        attention: grouped_attention(load, rope, options(load.config)?)?,
        mlp_norm: load.norm("post_attention_layernorm", load.config.hidden)?,
        mlp: dense(load)?,
    })
}

/// Grouped-query attention as the configuration describes it.
pub(super) fn options(config: &ModelConfig) -> Result<GroupedOptions, ModelError> {
    match config.attention {
        Attention::Grouped { key_value_heads, head_dimension, query_key_norm, bias, output_bias } => {
            let input = config.hidden;
            Ok(GroupedOptions { key_value_heads, head_dimension, input, query_key_norm, bias, output_bias })
        }
        Attention::Latent(_) => Err(ModelError::Unserved(format!("{} with latent attention", config.architecture))),
    }
}

pub(super) fn grouped_attention<B: Backend>(
    load: &mut Loader<'_, B>,
    rope: Rc<B::Rope>,
    options: GroupedOptions,
) -> Result<AttentionLayer<B>, ModelError> {
    Ok(AttentionLayer::Grouped(GroupedAttention::load(&mut load.at("self_attn"), options, rope)?))
}

pub(super) fn dense<B: Backend>(load: &mut Loader<'_, B>) -> Result<MlpLayer<B>, ModelError> {
    let intermediate = load.config.intermediate;
    Ok(MlpLayer::Dense(Mlp::load(&mut load.at("mlp"), intermediate)?))
}
