//! Which models this backend computes: asked before a plan is promised, long before a kernel is compiled.

use engine::model::{Attention, ModelConfig};

/// Largest head dimension of attention. A warp holds 16 pairs of queries and sums of a head in registers, and a ring of
/// pages in shared memory: a wider head fits neither on every architecture of the database.
pub const LARGEST_HEAD: u32 = 128;

/// Head dimensions that are compiled for every architecture and compared with the CPU: those of models that are served, and
/// every way in which a head is cut into accesses.
pub const HEADS: [u32; 7] = [16, 32, 48, 64, 80, 96, LARGEST_HEAD];

/// Why this backend does not compute a model. Reads on after "the CUDA backend".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    #[error("does not compute {0} yet")]
    Part(&'static str),
    #[error("computes heads of up to {LARGEST_HEAD} dimensions, and these have {0}")]
    Head(usize),
}

/// The model's head dimension. Errors: a part of the model that this backend does not compute.
pub fn head_dimension(config: &ModelConfig) -> Result<u32, Unserved> {
    match (&config.attention, &config.moe) {
        (Attention::Latent(_), _) => Err(Unserved::Part("latent attention")),
        (_, Some(_)) => Err(Unserved::Part("mixtures of experts")),
        (Attention::Grouped { head_dimension, .. }, None) => match u32::try_from(*head_dimension) {
            Ok(dimension @ 1..=LARGEST_HEAD) => Ok(dimension),
            _ => Err(Unserved::Head(*head_dimension)),
        },
    }
}
