//! The layers that the families are made of. Each loads this rank's share of its weights and computes this rank's
//! part of the result; the decoder sums the parts.

mod attention;
mod latent_attention;
mod mlp;
mod moe;
mod vocabulary;

pub use attention::{GroupedAttention, GroupedOptions};
pub use latent_attention::LatentAttentionLayer;
pub use mlp::Mlp;
pub use moe::MixtureOfExperts;
pub use vocabulary::{Embedding, Head};
