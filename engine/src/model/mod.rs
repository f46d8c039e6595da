//! Model families: what a configuration says and how a forward pass goes.
//!
//! A family's file puts its layers together from [`layers`]; [`Decoder`] walks them. All of it sees a backend and a
//! communicator through their traits.

mod config;
mod decoder;
mod deepseek_v3;
pub mod layers;
mod llama;
mod loader;
mod pass;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod rope;
mod share;

use std::rc::Rc;

pub use config::{
    Activation, Attention, Family, LatentAttention, LayerKind, ModelConfig, MoeConfig, QuantizationConfig, RopeConfig,
    RopeScaling, RouterScore,
};
pub use decoder::{AttentionLayer, Decoder, Layer, Limits, MlpLayer, sum_and_norm};
pub use loader::{Bias, Loader, ModelError, Slice};
pub use pass::{Pass, Scratch, Widths};
pub use rope::rope_table;
pub use share::{HeadShare, Share, attention_heads, cache_layout};

use crate::backend::Backend;
use crate::weights::WeightSource;

/// Loads one rank's share of a model. `progress` hears how many layers are loaded.
/// Errors: a family without a forward pass, a world size that does not divide the heads, missing or misshapen weights,
/// a device without room.
pub fn load<B: Backend>(
    backend: &mut B,
    source: &dyn WeightSource,
    config: &ModelConfig,
    share: Share,
    limits: Limits,
    progress: &mut dyn FnMut(usize),
) -> Result<Decoder<B>, ModelError> {
    if let Some(reason) = config.unserved.first() {
        return Err(ModelError::Unserved(format!("{}: {reason}", config.architecture)));
    }
    if !config.heads.is_multiple_of(share.world_size) {
        return Err(ModelError::HeadsNotDivisible { heads: config.heads, world_size: share.world_size });
    }
    let rope = Rc::new(backend.load_rope(&rope_table(&config.rope, limits.context))?);
    let mut load = Loader::new(backend, source, config, share);
    let mut layers = Vec::with_capacity(config.layers);
    for index in 0..config.layers {
        let mut load = load.at(format_args!("model.layers.{index}"));
        let rope = Rc::clone(&rope);
        layers.push(match &config.family {
            Family::Llama => llama::layer(&mut load, rope)?,
            Family::Qwen2 => qwen2::layer(&mut load, rope)?,
            Family::Qwen3 => qwen3::layer(&mut load, rope)?,
            Family::Qwen3Moe => qwen3_moe::layer(&mut load, rope, index)?,
            Family::DeepseekV3 => deepseek_v3::layer(&mut load, rope, index)?,
            Family::Other(name) => return Err(ModelError::Unserved(name.clone())),
        });
        progress(index + 1);
    }
    Decoder::load(&mut load, layers, limits)
}
