//! Device memory that operations need beside their inputs and outputs.

use engine::backend::{BackendError, HeadGroups, StepLimits};

use super::step::Step;
use super::{CudaBackend, MOST_CHOICES};
use crate::device::{Allocation, Gpu, Purpose};
use crate::kernels::AttentionSpace;
use crate::step::AttentionGeometry;

/// Where chosen tokens are.
pub(super) struct Choices {
    pub tokens: Allocation,
    pub best: Allocation,
    pub arrivals: Allocation,
}

impl Choices {
    pub fn new(gpu: &Gpu) -> Result<Self, BackendError> {
        let room =
            |bytes| Allocation::zeroed(&gpu.stream, &gpu.account, MOST_CHOICES * bytes, Purpose::Workspace, "choices");
        Ok(Self { tokens: room(size_of::<u32>())?, best: room(size_of::<u64>())?, arrivals: room(size_of::<u32>())? })
    }
}

/// Parts of attention over long contexts, shared by all layers.
pub(super) struct AttentionRoom {
    workspace: Allocation,
    arrivals: Allocation,
    geometry: AttentionGeometry,
}

impl AttentionRoom {
    pub fn space(&self) -> AttentionSpace {
        AttentionSpace { workspace: self.workspace.pointer(), arrivals: self.arrivals.pointer() }
    }
}

impl CudaBackend {
    /// The step, and what operations on the largest one need. Layers and caches are there already.
    pub(super) fn make_step(&mut self, limits: &StepLimits) -> Result<Step, BackendError> {
        if self.widest > 0 && self.widened.is_none() {
            let bytes = self.widest * size_of::<half::bf16>();
            self.widened = Some(Allocation::new(&self.gpu.account, bytes, Purpose::Workspace, "converted weights")?);
        }
        let none = (HeadGroups { query_heads: 1, group: 1, offset: 0 }, 1);
        let (groups, cached) = self.heads.unwrap_or(none);
        let geometry = AttentionGeometry::new(&groups, cached, self.gpu.multiprocessors as usize);
        if self.attention.as_ref().is_none_or(|room| room.geometry != geometry) {
            let bytes = AttentionSpace::workspace_bytes(&geometry, limits.rows, self.widest_head);
            let workspace = Allocation::new(&self.gpu.account, bytes, Purpose::Workspace, "attention")?;
            let bytes = AttentionSpace::arrivals_bytes(&geometry, limits.rows);
            let arrivals = self.zeroed(bytes, Purpose::Workspace, "attention")?;
            self.attention = Some(AttentionRoom { workspace, arrivals, geometry });
        }
        let step = Step::new(&self.gpu, limits, geometry)?;
        self.note_memory()?;
        Ok(step)
    }
}
