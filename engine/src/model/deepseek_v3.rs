//! DeepSeek V3 (also Kimi K2): multi-head latent attention with interleaved rotary positions, and a mixture of experts
//! with a grouped sigmoid router, a correction bias for the choice, and a shared expert; the first layers are dense.

use std::rc::Rc;

use super::layers::LatentAttentionLayer;
use super::{Attention, AttentionLayer, Layer, Loader, ModelError, qwen3_moe};
use crate::backend::Backend;

/// `load` stands at `model.layers.N`, N being `index`.
pub(super) fn layer<B: Backend>(
    load: &mut Loader<'_, B>,
    rope: Rc<B::Rope>,
    index: usize,
) -> Result<Layer<B>, ModelError> {
    let Attention::Latent(shape) = &load.config.attention else {
        return Err(ModelError::Unserved(format!("{} without latent attention", load.config.architecture)));
    };
    Ok(Layer {
        attention_norm: load.norm("input_layernorm", load.config.hidden)?,
        attention: AttentionLayer::Latent(LatentAttentionLayer::load(&mut load.at("self_attn"), shape, rope)?),
        mlp_norm: load.norm("post_attention_layernorm", load.config.hidden)?,
        mlp: qwen3_moe::mlp(load, index)?,
    })
}
