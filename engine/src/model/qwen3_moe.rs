//! Qwen3 mixture of experts: Qwen3's attention, and a softmax router over experts in place of the MLP. Some layers may
//! stay dense.

use std::rc::Rc;

use super::layers::MixtureOfExperts;
use super::{Layer, LayerKind, Loader, MlpLayer, ModelError, llama, qwen3};
use crate::backend::Backend;

/// `load` stands at `model.layers.N`, N being `index`.
pub(super) fn layer<B: Backend>(
    load: &mut Loader<'_, B>,
    rope: Rc<B::Rope>,
    index: usize,
) -> Result<Layer<B>, ModelError> {
    Ok(Layer {
        attention_norm: load.norm("input_layernorm", load.config.hidden)?,
        attention: qwen3::attention(load, rope)?,
        mlp_norm: load.norm("post_attention_layernorm", load.config.hidden)?,
        mlp: mlp(load, index)?,
    })
}

/// The layer's MLP as the configuration's layer kinds say: dense or a mixture.
pub(super) fn mlp<B: Backend>(load: &mut Loader<'_, B>, index: usize) -> Result<MlpLayer<B>, ModelError> {
    match (load.config.layer_kinds.get(index), &load.config.moe) {
        (Some(LayerKind::Moe), Some(moe)) => Ok(MlpLayer::Mixture(MixtureOfExperts::load(&mut load.at("mlp"), moe)?)),
        _ => llama::dense(load),
    }
}
