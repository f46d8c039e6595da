//! Model families: what a configuration says and how a forward pass goes.

mod config;

pub use config::{
    Activation, Attention, Family, LatentAttention, LayerKind, ModelConfig, MoeConfig, QuantizationConfig, RopeConfig,
    RopeScaling, RouterScore,
};
