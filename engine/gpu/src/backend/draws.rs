//! Drawing tokens on the device: how each row is drawn goes there in one copy.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUdeviceptr;
use engine::backend::{BackendError, DrawRows};

use super::CudaBackend;
use crate::device::{Allocation, Gpu, Pinned, Purpose, backend_error};
use crate::kernels::{self, LogitsChange, Sample, SampleRow};

/// Most changes of logits in one call: what a few long prompts with penalties need, 1 MiB.
pub(super) const MOST_CHANGES: usize = 1 << 16;

/// Rows, then changes.
pub(super) struct DrawRoom {
    memory: Allocation,
    staging: Pinned,
    /// The last copy has ended.
    copied: CudaEvent,
    rows: usize,
}

impl DrawRoom {
    pub fn new(gpu: &Gpu, rows: usize) -> Result<Self, BackendError> {
        let bytes = rows * size_of::<SampleRow>() + MOST_CHANGES * size_of::<LogitsChange>();
        let copied = gpu.context.new_event(None).map_err(|error| backend_error("draw", error))?;
        let memory = Allocation::new(&gpu.account, bytes, Purpose::Workspace, "draws")?;
        Ok(Self { memory, staging: Pinned::new(&gpu.context, bytes)?, copied, rows })
    }

    fn changes(&self) -> CUdeviceptr {
        self.memory.pointer() + (self.rows * size_of::<SampleRow>()) as CUdeviceptr
    }

    fn upload(&mut self, gpu: &Gpu, rows: &[SampleRow], changes: &[LogitsChange]) -> Result<(), BackendError> {
        for (what, actual, limit) in [("draws", rows.len(), self.rows), ("changes", changes.len(), MOST_CHANGES)] {
            if actual > limit {
                return Err(BackendError::StepTooLarge { what, actual, limit });
            }
        }
        let failed = |error| backend_error("draw", error);
        self.copied.synchronize().map_err(failed)?;
        let first = self.rows * size_of::<SampleRow>();
        let (rows, changes): (&[u8], &[u8]) = (bytemuck::cast_slice(rows), bytemuck::cast_slice(changes));
        let bytes = self.staging.bytes_mut();
        bytes[..rows.len()].copy_from_slice(rows);
        bytes[first..first + changes.len()].copy_from_slice(changes);
        let used = if changes.is_empty() { rows.len() } else { first + changes.len() };
        self.staging.copy_to(self.memory.pointer(), used, &gpu.stream)?;
        self.copied.record(&gpu.stream).map_err(failed)
    }
}

impl CudaBackend {
    pub(super) fn launch_draw(&mut self, arguments: DrawRows<'_, Self>) -> Result<(), BackendError> {
        let DrawRows { logits, width, draws, changes, place } = arguments;
        let message = "tokens are drawn before there is room for choices".to_owned();
        let missing = BackendError::Device { operation: "draw", message };
        let (Some(choices), Some(room)) = (&self.choices, &mut self.draws) else { return Err(missing) };
        let rows: Vec<SampleRow> = draws.iter().map(SampleRow::of).collect();
        let changes: Vec<LogitsChange> = changes.iter().map(LogitsChange::from).collect();
        room.upload(&self.gpu, &rows, &changes)?;
        let (vocabulary, count) = (width as u32, rows.len() as u32);
        let [tokens, host] = choices.at(place);
        let (logits, at) = (logits.memory.pointer(), room.memory.pointer());
        if !changes.is_empty() {
            let memory = [logits, at, room.changes()];
            // SAFETY: as many rows of logits as there are draws, by the caller's promise; rows and changes were just
            // uploaded, and each row's changes lie within them.
            unsafe { kernels::adjust_logits(&self.launcher, &self.kernels, memory, vocabulary, count) }?;
        }
        let sample = Sample { logits, rows: at, tokens, host, vocabulary, count };
        // SAFETY: as above; the room for draws is as large as that for choices.
        Ok(unsafe { kernels::sample(&self.launcher, &self.kernels, &sample) }?)
    }
}
