//! How ranks combine what they computed. Models call a [`Communicator`]: it looks up what the plan chose for the
//! site, the phase and the message size, has the ranks' [`Collective`] do it, and counts what ran.

mod communicator;
mod counters;
mod plan;
pub mod space;

use crate::backend::{AddNorm, Backend, BackendError};

pub use communicator::{Communicator, PassError};
pub use counters::{CallCounters, CallKey, SizeBucket};
pub use plan::{CollectivePlan, NO_FUSION, Operation, Rung, Site};

/// Why a collective did not finish. Every rank of the group gets one within the group's deadline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} at {site}: {message}", operation = .operation.name(), site = .site.name())]
pub struct CollectiveError {
    pub operation: Operation,
    pub site: Site,
    /// Names the rank that panicked, stalled or failed.
    pub message: String,
}

/// One rank's place in a group of ranks. All ranks of a group make the same calls in the same order; a call returns
/// when this rank's result is there. A rank that fails poisons the group, so that all others return an error too.
pub trait Collective<B: Backend> {
    fn rank(&self) -> usize;
    fn world_size(&self) -> usize;

    /// Returns when every rank has come to this point: before the first step, where ranks may be minutes apart. Groups
    /// whose calls wait that long anyway need not do anything.
    fn meet(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Sums `rows` over all ranks, in place. The order of summation is the same in every run.
    fn all_reduce(&mut self, backend: &mut B, call: Call<'_>, rows: RankRows<'_, B>) -> Result<(), CollectiveError>;

    /// The sum of the addend, then [`Backend::add_rms_norm`], as one fused operation. Called only where the plan chose
    /// a fusion, so an implementation without fusions answers with an error.
    fn all_reduce_add_norm(
        &mut self,
        backend: &mut B,
        call: Call<'_>,
        arguments: AddNorm<'_, B>,
    ) -> Result<(), CollectiveError>;

    /// Lays the ranks' columns of logits side by side on every rank.
    fn all_gather(&mut self, backend: &mut B, call: Call<'_>, gather: AllGather<'_, B>) -> Result<(), CollectiveError>;

    /// Copies `rows` of rank `root` to all ranks.
    fn broadcast(
        &mut self,
        backend: &mut B,
        call: Call<'_>,
        root: usize,
        rows: RankRows<'_, B>,
    ) -> Result<(), CollectiveError>;
}

/// Which call this is and what the plan chose for it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub operation: Operation,
    pub site: Site,
    pub rung: &'a Rung,
}

/// This rank's message, `[rows, width]`, changed in place.
pub struct RankRows<'a, B: Backend> {
    pub buffer: &'a mut B::Buffer,
    pub rows: usize,
    pub width: usize,
}

impl<B: Backend> RankRows<'_, B> {
    fn bytes(&self) -> u64 {
        communicator::message_bytes(self.rows, self.width, B::ELEMENT_BYTES)
    }
}

/// Buffers of [`Backend::allocate_logits`]: `input` is `[rows, width]`, on the last ranks with as many columns as are left of `total`; `output` is
/// `[rows, total]`.
pub struct AllGather<'a, B: Backend> {
    pub input: &'a B::Buffer,
    pub output: &'a mut B::Buffer,
    pub rows: usize,
    pub width: usize,
    pub total: usize,
}
