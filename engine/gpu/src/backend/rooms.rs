//! Device memory that operations need beside their inputs and outputs.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::{CUdeviceptr, CUevent_flags};
use engine::backend::{AttentionHeads, BackendError, HeadGroups, StepLimits};

use super::CudaBackend;
use super::step::Step;
use crate::device::{Allocation, Gpu, Pinned, Purpose, backend_error};
use crate::kernels::{AttentionSpace, PREFERRED_OF_SOME, SQUARES};
use crate::step::AttentionGeometry;

/// Where chosen tokens are, by place.
pub(super) struct Choices {
    pub tokens: Allocation,
    /// The same on the host: kernels write to both.
    pub host: Pinned,
    pub best: Allocation,
    pub arrivals: Allocation,
    pub places: usize,
}

impl Choices {
    pub fn new(gpu: &Gpu, places: usize) -> Result<Self, BackendError> {
        let room = |bytes| Allocation::zeroed(&gpu.stream, &gpu.account, places * bytes, Purpose::Workspace, "choices");
        Ok(Self {
            tokens: room(size_of::<u32>())?,
            host: Pinned::new(&gpu.context, places * size_of::<u32>())?,
            best: room(size_of::<u64>())?,
            arrivals: room(size_of::<u32>())?,
            places,
        })
    }

    /// The place on the device and on the host.
    pub fn at(&self, place: usize) -> [CUdeviceptr; 2] {
        let bytes = (place * size_of::<u32>()) as CUdeviceptr;
        [self.tokens.pointer() + bytes, self.host.device_pointer() + bytes]
    }
}

/// When the device came to which point.
pub(super) struct Marks([CudaEvent; 6]);

impl Marks {
    pub fn new(gpu: &Gpu) -> Result<Self, BackendError> {
        let event = || {
            let event = gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(|error| backend_error("cuEventCreate", error))
        };
        Ok(Self([event()?, event()?, event()?, event()?, event()?, event()?]))
    }

    pub fn set(&self, mark: usize, gpu: &Gpu) -> Result<(), BackendError> {
        self.0[mark].record(&gpu.stream).map_err(|error| backend_error("mark", error))
    }

    /// Waits for both; 0 where one was never set.
    pub fn seconds(&self, from: usize, to: usize) -> f64 {
        self.0[from].elapsed_ms(&self.0[to]).map_or(0.0, |milliseconds| f64::from(milliseconds) / 1e3)
    }
}

/// Parts of attention over long contexts, shared by all layers and models of the rank.
pub(super) struct AttentionRoom {
    workspace: Allocation,
    arrivals: Allocation,
}

impl AttentionRoom {
    pub fn space(&self) -> AttentionSpace {
        AttentionSpace { workspace: self.workspace.pointer(), arrivals: self.arrivals.pointer() }
    }
}

/// Bytes of the sums of squares of a row.
fn squares_bytes(width: usize) -> usize {
    width.div_ceil(SQUARES as usize) * size_of::<f32>()
}

impl CudaBackend {
    /// The step, and what operations on the largest one need. Layers and caches are there already.
    pub(super) fn make_step(
        &mut self,
        limits: &StepLimits,
        heads: Option<AttentionHeads>,
    ) -> Result<Step, BackendError> {
        self.kernels.ready()?;
        if self.widest > 0 && self.widened.is_none() {
            let bytes = self.widest * size_of::<half::bf16>();
            self.widened = Some(Allocation::new(&self.gpu.account, bytes, Purpose::Workspace, "converted weights")?);
        }
        let none = AttentionHeads { groups: HeadGroups { query_heads: 1, group: 1, offset: 0 }, cached: 1 };
        let AttentionHeads { groups, cached } = heads.unwrap_or(none);
        let geometry = AttentionGeometry::new(&groups, cached, self.gpu.multiprocessors as usize);
        if heads.is_some() {
            self.make_attention_room(&geometry, limits.rows)?;
        }
        self.make_squares_room()?;
        let step = Step::new(&self.gpu, limits, geometry)?;
        self.note_memory()?;
        Ok(step)
    }

    /// Room for the widest norm of all models.
    fn make_squares_room(&mut self) -> Result<(), BackendError> {
        let bytes = PREFERRED_OF_SOME as usize * squares_bytes(self.widest_norm);
        if self.squares.as_ref().is_none_or(|room| room.bytes() < bytes) {
            self.squares = Some(Allocation::new(&self.gpu.account, bytes, Purpose::Workspace, "norms")?);
        }
        Ok(())
    }

    /// Where a product of so many rows leaves sums of squares of sums that are `width` wide; none where there is no room.
    pub(super) fn squares_of(&self, width: usize, rows: usize) -> Option<CUdeviceptr> {
        let whole = width.is_multiple_of(SQUARES as usize);
        let room = self.squares.as_ref().filter(|room| whole && rows * squares_bytes(width) <= room.bytes())?;
        Some(room.pointer())
    }

    /// Room for the largest of all steps. Passes are recorded later, so it may still move.
    fn make_attention_room(&mut self, geometry: &AttentionGeometry, rows: usize) -> Result<(), BackendError> {
        let workspace = AttentionSpace::workspace_bytes(geometry, rows, self.widest_head);
        let arrivals = AttentionSpace::arrivals_bytes(geometry, rows);
        let old = self.attention.take().map_or([0; 2], |room| [room.workspace.bytes(), room.arrivals.bytes()]);
        let workspace = Allocation::new(&self.gpu.account, workspace.max(old[0]), Purpose::Workspace, "attention")?;
        let arrivals = self.zeroed(arrivals.max(old[1]), Purpose::Workspace, "attention")?;
        self.attention = Some(AttentionRoom { workspace, arrivals });
        Ok(())
    }
}
