//! What comes back to the host.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUdeviceptr;
use engine::backend::{Backend, BackendError};

use super::types::{Buffer, Element};
use super::{CudaBackend, READBACK};
use crate::device::{Gpu, Pinned, backend_error};

/// Choices of two steps, in turns: a step may choose again before the host has read what the one before chose.
pub(super) struct Kept {
    tokens: CUdeviceptr,
    rooms: [Room; 2],
    /// The next room to fill, and how many are filled.
    next: usize,
    filled: usize,
}

struct Room {
    memory: Pinned,
    /// The copy has ended.
    copied: CudaEvent,
}

impl Kept {
    /// For choices of so many places at `tokens` on the device.
    pub fn new(gpu: &Gpu, tokens: CUdeviceptr, places: usize) -> Result<Self, BackendError> {
        let room = || -> Result<Room, BackendError> {
            let copied = gpu.context.new_event(None).map_err(|error| backend_error("allocate_choices", error))?;
            Ok(Room { memory: Pinned::new(&gpu.context, places * size_of::<u32>())?, copied })
        };
        Ok(Self { tokens, rooms: [room()?, room()?], next: 0, filled: 0 })
    }

    /// Puts a copy of the first places into the stream. Errors: more places than there are, or two steps' are kept already.
    pub fn keep(&mut self, places: usize, gpu: &Gpu) -> Result<(), BackendError> {
        let (count, room) = (self.rooms.len(), &mut self.rooms[self.next]);
        let limit = room.memory.bytes().len() / size_of::<u32>();
        for (what, actual, limit) in [("choices", places, limit), ("steps whose choices wait", self.filled + 1, count)]
        {
            if actual > limit {
                return Err(BackendError::StepTooLarge { what, actual, limit });
            }
        }
        if places > 0 {
            room.memory.copy_from(self.tokens, places * size_of::<u32>(), &gpu.stream)?;
        }
        room.copied.record(&gpu.stream).map_err(|error| backend_error("keep_choices", error))?;
        (self.next, self.filled) = ((self.next + 1) % count, self.filled + 1);
        Ok(())
    }

    fn first(&self) -> Option<&Room> {
        let count = self.rooms.len();
        (self.filled > 0).then(|| &self.rooms[(self.next + count - self.filled) % count])
    }

    /// Whether the first that are kept have come; also if none are. Errors: the device failed.
    pub fn has_come(&self) -> Result<bool, BackendError> {
        let come = self.first().map_or(Ok(true), |room| room.copied.try_is_complete());
        come.map_err(|error| backend_error("step", error))
    }

    /// Waits for the first that are kept, and gives their room back.
    pub fn take(&mut self, to: &mut [u32]) -> Result<(), BackendError> {
        let Some(room) = self.first() else { return Ok(()) };
        room.copied.synchronize().map_err(|error| backend_error("step", error))?;
        let words: &[u32] = bytemuck::cast_slice(room.memory.bytes());
        to.copy_from_slice(&words[..to.len()]);
        self.filled -= 1;
        Ok(())
    }
}

impl CudaBackend {
    pub(super) fn read_elements(&mut self, buffer: &Buffer, from: usize, to: &mut [f32]) -> Result<(), BackendError> {
        assert!(from + to.len() <= buffer.elements, "what is read lies inside the buffer");
        self.ready(&[buffer.memory.pointer()], &[])?;
        let width = if buffer.element == Element::F32 { size_of::<f32>() } else { Self::ELEMENT_BYTES };
        for (index, to) in to.chunks_mut(READBACK / width).enumerate() {
            let first = from + index * (READBACK / width);
            let address = buffer.memory.pointer() + (first * width) as u64;
            self.readback.copy_from(address, to.len() * width, &self.gpu.stream)?;
            self.settle("read")?;
            let bytes = &self.readback.bytes()[..to.len() * width];
            match buffer.element {
                Element::F32 => bytemuck::cast_slice_mut(to).copy_from_slice(bytes),
                Element::Bf16 => {
                    for (to, bytes) in to.iter_mut().zip(bytes.as_chunks().0) {
                        *to = half::bf16::from_le_bytes(*bytes).to_f32();
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for everything that was launched.
    pub(super) fn read_chosen(&mut self, from: usize, to: &mut [u32]) -> Result<(), BackendError> {
        self.ready(&[], &[])?;
        let Some(choices) = self.choices.as_ref().filter(|_| !to.is_empty()) else { return Ok(()) };
        self.settle("step")?;
        let words: &[u32] = bytemuck::cast_slice(choices.host.bytes());
        to.copy_from_slice(&words[from..from + to.len()]);
        Ok(())
    }
}
