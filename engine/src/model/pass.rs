//! What a forward pass works with.

use crate::backend::{Backend, BackendError};
use crate::collective::Communicator;
use crate::types::Phase;

/// One forward pass of one rank.
pub struct Pass<'a, B: Backend> {
    pub backend: &'a mut B,
    pub communicator: &'a mut Communicator<B>,
    pub cache: &'a mut B::Cache,
    pub step: &'a B::Step,
    pub phase: Phase,
    /// Rows of the step.
    pub rows: usize,
}

/// Widest rows that the layers put in each buffer on this rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths {
    /// Of a layer's input where that is wider than the hidden size.
    pub normed: usize,
    pub projected: usize,
    pub attended: usize,
    pub query_latent: usize,
    pub latent: usize,
    pub activated: usize,
    pub experts: usize,
    pub experts_per_token: usize,
}

impl Widths {
    /// The larger of the two, for each buffer.
    pub fn or(self, other: Self) -> Self {
        Self {
            normed: self.normed.max(other.normed),
            projected: self.projected.max(other.projected),
            attended: self.attended.max(other.attended),
            query_latent: self.query_latent.max(other.query_latent),
            latent: self.latent.max(other.latent),
            activated: self.activated.max(other.activated),
            experts: self.experts.max(other.experts),
            experts_per_token: self.experts_per_token.max(other.experts_per_token),
        }
    }
}

/// Activations of one pass, allocated once and shared by all layers.
pub struct Scratch<B: Backend> {
    /// The residual stream, `[rows, hidden]`.
    pub residual: B::Buffer,
    /// What a layer reads: the normalised residual stream.
    pub normed: B::Buffer,
    /// What a layer gives: this rank's part of a sum over ranks.
    pub partial: B::Buffer,
    /// Queries, keys and values of a layer, or gate and up.
    pub projected: B::Buffer,
    pub attended: B::Buffer,
    pub query_latent: B::Buffer,
    pub latent: B::Buffer,
    pub activated: B::Buffer,
    pub router_logits: B::Buffer,
    pub routes: B::Routes,
    /// The mixture's sum, beside the shared expert's in `partial`.
    pub mixed: B::Buffer,
}

impl<B: Backend> Scratch<B> {
    pub fn allocate(backend: &mut B, rows: usize, hidden: usize, widths: Widths) -> Result<Self, BackendError> {
        let routes = backend.allocate_routes(rows, widths.experts_per_token)?;
        let mixed = if widths.experts > 0 { hidden } else { 0 };
        let mut allocate = |width| backend.allocate_buffer(rows * width);
        Ok(Self {
            residual: allocate(hidden)?,
            normed: allocate(hidden.max(widths.normed))?,
            partial: allocate(hidden)?,
            projected: allocate(widths.projected)?,
            attended: allocate(widths.attended)?,
            query_latent: allocate(widths.query_latent)?,
            latent: allocate(widths.latent)?,
            activated: allocate(widths.activated)?,
            router_logits: allocate(widths.experts)?,
            routes,
            mixed: allocate(mixed)?,
        })
    }
}
