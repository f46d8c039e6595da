//! Qwen3: Llama's layer with an RMS norm over each query and key head before the rotation. Heads need not add up to
//! the hidden size.

use std::rc::Rc;

use super::layers::GroupedOptions;
use super::{AttentionLayer, Layer, Loader, ModelError, llama};
use crate::backend::Backend;

/// `load` stands at `model.layers.N`.
pub(super) fn layer<B: Backend>(load: &mut Loader<'_, B>, rope: Rc<B::Rope>) -> Result<Layer<B>, ModelError> {
    Ok(Layer {
        attention_norm: load.norm("input_layernorm", load.config.hidden)?,
        attention: attention(load, rope)?,
        mlp_norm: load.norm("post_attention_layernorm", load.config.hidden)?,
        mlp: llama::dense(load)?,
    })
}

/// Qwen3's attention, dense or mixture.
pub(super) fn attention<B: Backend>(
    load: &mut Loader<'_, B>,
    rope: Rc<B::Rope>,
) -> Result<AttentionLayer<B>, ModelError> {
    let options = GroupedOptions { query_key_norm: true, ..llama::options(load.config)? };
    llama::grouped_attention(load, rope, options)
}
