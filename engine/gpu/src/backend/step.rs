//! The step's integers, copied to the device in one piece.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaStream};
use engine::backend::{BackendError, StepInput, StepLimits};

use crate::device::{Allocation, Gpu, Pinned, Purpose, backend_error};
use crate::step::{AttentionGeometry, StepAddresses, StepCapacity, StepImage, StepLayout};

/// Rows of a step that is laid out closely: decode steps should not carry the room of the largest prompt to the device.
pub(super) const FEW_ROWS: usize = 256;

/// The content of the current step on the device.
pub struct Step {
    /// For few rows; recorded passes read this one.
    close: Place,
    /// For more rows, where the limits allow them.
    wide: Option<Place>,
    is_wide: bool,
    pub(super) geometry: AttentionGeometry,
}

/// One layout, on the host and on the device.
struct Place {
    image: StepImage,
    addresses: StepAddresses,
    _memory: Allocation,
    staging: Pinned,
    /// The last copy has ended.
    copied: CudaEvent,
    rows: usize,
}

impl Step {
    pub(super) fn new(gpu: &Gpu, limits: &StepLimits, geometry: AttentionGeometry) -> Result<Self, BackendError> {
        let close = StepLimits { rows: limits.rows.min(FEW_ROWS), ..*limits };
        let wide = (limits.rows > FEW_ROWS).then(|| Place::new(gpu, limits, geometry)).transpose()?;
        Ok(Self { close: Place::new(gpu, &close, geometry)?, wide, is_wide: false, geometry })
    }

    fn place(&self) -> &Place {
        self.wide.as_ref().filter(|_| self.is_wide).unwrap_or(&self.close)
    }

    /// What tells this step from others.
    pub(super) fn id(&self) -> CUdeviceptr {
        self.close.addresses.counts
    }

    pub(super) fn addresses(&self) -> &StepAddresses {
        &self.place().addresses
    }

    /// Work items of attention that does not split the context.
    pub(super) fn whole_items(&self) -> usize {
        self.place().image.whole_items()
    }

    /// Copies `input`. Rows up to `padded` that it does not have are marked as padding.
    pub(super) fn upload(
        &mut self,
        stream: &Arc<CudaStream>,
        input: &StepInput,
        padded: usize,
    ) -> Result<(), BackendError> {
        // A list of rows to pick has no rows of its own.
        self.is_wide = self.wide.is_some() && input.rows().max(input.logit_rows.len()) > self.close.rows;
        let place = self.wide.as_mut().filter(|_| self.is_wide).unwrap_or(&mut self.close);
        place.upload(stream, input, padded)
    }
}

impl Place {
    fn new(gpu: &Gpu, limits: &StepLimits, geometry: AttentionGeometry) -> Result<Self, BackendError> {
        let (stream, account) = (&gpu.stream, &gpu.account);
        let layout = StepLayout::new(StepCapacity::new(limits, &geometry));
        let memory = Allocation::zeroed(stream, account, layout.bytes(), Purpose::Workspace, "allocate_step")?;
        let copied = gpu.context.new_event(None).map_err(|error| backend_error("allocate_step", error))?;
        let staging = Pinned::new(&gpu.context, layout.bytes())?;
        let addresses = layout.addresses(memory.pointer());
        let image = StepImage::new(layout, geometry);
        Ok(Self { image, addresses, _memory: memory, staging, copied, rows: limits.rows })
    }

    fn upload(&mut self, stream: &Arc<CudaStream>, input: &StepInput, padded: usize) -> Result<(), BackendError> {
        self.image.fill(input, padded.min(self.rows))?;
        let words: &[u8] = bytemuck::cast_slice(self.image.words());
        self.copied.synchronize().map_err(|error| backend_error("upload", error))?;
        self.staging.bytes_mut()[..words.len()].copy_from_slice(words);
        self.staging.copy_to(self.addresses.counts, words.len(), stream)?;
        self.copied.record(stream).map_err(|error| backend_error("upload", error))
    }
}
