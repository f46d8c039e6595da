//! The step's integers, copied to the device in one piece.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};
use engine::backend::{BackendError, StepInput, StepLimits};

use crate::device::{Allocation, Gpu, Pinned, Purpose, backend_error};
use crate::step::{AttentionGeometry, StepAddresses, StepCapacity, StepImage, StepLayout};

/// The content of the current step on the device.
pub struct Step {
    image: StepImage,
    addresses: StepAddresses,
    _memory: Allocation,
    staging: Pinned,
    /// The last copy has ended.
    copied: CudaEvent,
    pub(super) geometry: AttentionGeometry,
    /// Rows that the image is padded to where no pass says otherwise.
    rows: usize,
}

impl Step {
    pub(super) fn new(gpu: &Gpu, limits: &StepLimits, geometry: AttentionGeometry) -> Result<Self, BackendError> {
        let layout = StepLayout::new(StepCapacity::new(limits, &geometry));
        let memory =
            Allocation::zeroed(&gpu.stream, &gpu.account, layout.bytes(), Purpose::Workspace, "allocate_step")?;
        let copied = gpu.context.new_event(None).map_err(|error| backend_error("allocate_step", error))?;
        let staging = Pinned::new(&gpu.context, layout.bytes())?;
        let addresses = layout.addresses(memory.pointer());
        let image = StepImage::new(layout, geometry);
        Ok(Self { image, addresses, _memory: memory, staging, copied, geometry, rows: limits.rows })
    }

    pub(super) fn addresses(&self) -> &StepAddresses {
        &self.addresses
    }

    /// Work items of attention that does not split the context.
    pub(super) fn whole_items(&self) -> usize {
        self.image.whole_items()
    }

    /// Copies `input`. Rows up to `padded` that it does not have are marked as padding.
    pub(super) fn upload(
        &mut self,
        stream: &Arc<CudaStream>,
        input: &StepInput,
        padded: usize,
    ) -> Result<(), BackendError> {
        self.image.fill(input, padded.min(self.rows))?;
        let words: &[u8] = bytemuck::cast_slice(self.image.words());
        self.copied.synchronize().map_err(|error| backend_error("upload", error))?;
        self.staging.bytes_mut()[..words.len()].copy_from_slice(words);
        self.staging.copy_to(self.addresses.counts, words.len(), stream)?;
        self.copied.record(stream).map_err(|error| backend_error("upload", error))
    }
}
