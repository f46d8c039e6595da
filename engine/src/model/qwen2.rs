//! Qwen2 and Qwen2.5: Llama's layer with a bias on queries, keys and values, and on nothing else.

use std::rc::Rc;

use super::layers::GroupedOptions;
use super::{Layer, Loader, ModelError, llama};
use crate::backend::Backend;

/// `load` stands at `model.layers.N`.
pub(super) fn layer<B: Backend>(load: &mut Loader<'_, B>, rope: Rc<B::Rope>) -> Result<Layer<B>, ModelError> {
    let options = GroupedOptions { bias: true, output_bias: false, ..llama::options(load.config)? };
    Ok(Layer {
        attention_norm: load.norm("input_layernorm", load.config.hidden)?,
        attention: llama::grouped_attention(load, rope, options)?,
        mlp_norm: load.norm("post_attention_layernorm", load.config.hidden)?,
        mlp: llama::dense(load)?,
    })
}
