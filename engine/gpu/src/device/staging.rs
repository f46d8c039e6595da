//! Host memory that the device copies from directly, and the upload of weights through it.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result};
use engine::backend::BackendError;

use super::error::backend_error;

/// Bytes of one of the uploader's two buffers: large enough that starting a copy costs nothing beside it.
const CHUNK: usize = 32 << 20;
/// Threads that read a weight file: page faults of one thread are far slower than the bus.
const READERS: usize = 8;

/// Page-locked host memory.
pub struct Pinned {
    pointer: *mut u8,
    bytes: usize,
    context: Arc<CudaContext>,
}

impl Pinned {
    /// Zeroed.
    pub fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, BackendError> {
        let failed = |error| backend_error("page-locked memory", error);
        context.bind_to_thread().map_err(failed)?;
        // SAFETY: freed once, by `drop`.
        let pointer = unsafe { result::malloc_host(bytes.max(1), 0) }.map_err(failed)?.cast::<u8>();
        // SAFETY: the driver gave at least so many bytes.
        unsafe { pointer.write_bytes(0, bytes.max(1)) };
        Ok(Self { pointer, bytes, context: Arc::clone(context) })
    }

    /// Where the device sees this memory: page-locked memory has one address for both (CUDA programming guide, unified
    /// virtual addressing).
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.pointer as CUdeviceptr
    }

    /// The caller makes sure that no copy is under way.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` bytes, initialised at start, alive as long as `self`.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    /// The caller makes sure that no copy is under way.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }

    /// Starts copying the first `bytes` bytes to the device.
    pub fn copy_to(&self, to: CUdeviceptr, bytes: usize, stream: &CudaStream) -> Result<(), BackendError> {
        // SAFETY: the source is page-locked and outlives the copy, because owners wait for an event before they write
        // to it or drop it; the caller gives a target of so many bytes.
        let copied = unsafe { result::memcpy_htod_async(to, &self.bytes()[..bytes], stream.cu_stream()) };
        copied.map_err(|error| backend_error("copy to the device", error))
    }

    /// Starts copying from the device to the first `bytes` bytes.
    pub fn copy_from(&mut self, from: CUdeviceptr, bytes: usize, stream: &CudaStream) -> Result<(), BackendError> {
        let stream = stream.cu_stream();
        // SAFETY: as in `copy_to`, the other way round.
        let copied = unsafe { result::memcpy_dtoh_async(&mut self.bytes_mut()[..bytes], from, stream) };
        copied.map_err(|error| backend_error("copy to the host", error))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A copy may be under way; after a fault of the device nothing is.
        let _ = self.context.bind_to_thread().and_then(|()| self.context.synchronize());
        // SAFETY: allocated by `new`, freed only here.
        let _ = unsafe { result::free_host(self.pointer.cast()) };
    }
}

/// Copies weights to the device, reading the next piece while one is on its way.
pub struct Uploader {
    buffers: [(Pinned, CudaEvent); 2],
    next: usize,
    stream: Arc<CudaStream>,
    readers: usize,
}

impl Uploader {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self, BackendError> {
        let context = stream.context();
        let buffer = || -> Result<(Pinned, CudaEvent), BackendError> {
            let event = context.new_event(None).map_err(|error| backend_error("cuEventCreate", error))?;
            Ok((Pinned::new(context, CHUNK)?, event))
        };
        let readers = thread::available_parallelism().map_or(1, NonZero::get).min(READERS);
        Ok(Self { buffers: [buffer()?, buffer()?], next: 0, stream: Arc::clone(stream), readers })
    }

    /// Copies `bytes` to `to`, which has room for them. Returns when all of it is on its way.
    pub fn upload(&mut self, bytes: &[u8], to: CUdeviceptr) -> Result<(), BackendError> {
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            let (buffer, event) = &mut self.buffers[self.next];
            self.next = 1 - self.next;
            event.synchronize().map_err(|error| backend_error("load", error))?;
            copy(chunk, &mut buffer.bytes_mut()[..chunk.len()], self.readers);
            buffer.copy_to(to + (index * CHUNK) as CUdeviceptr, chunk.len(), &self.stream)?;
            event.record(&self.stream).map_err(|error| backend_error("load", error))?;
        }
        Ok(())
    }
}

/// Copies on several threads.
fn copy(from: &[u8], to: &mut [u8], readers: usize) {
    let part = from.len().div_ceil(readers).max(1 << 20);
    if from.len() <= part {
        return to.copy_from_slice(from);
    }
    thread::scope(|scope| {
        for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::copy;

    #[test]
    fn pieces_are_copied_to_their_place() {
        let from: Vec<u8> = (0..5_000_001_u32).map(|number| (number % 251) as u8).collect();
        for readers in [1, 3, 8] {
            let mut to = vec![0; from.len()];
            copy(&from, &mut to, readers);
            assert!(from == to, "{readers} readers");
        }
    }
}
