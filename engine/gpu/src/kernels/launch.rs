//! Launching: grids, shared memory, and programmatic dependent launch.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaStream, sys};

use super::KernelError;

/// A function of a loaded module. Valid as long as the module's context.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub(super) function: sys::CUfunction,
    pub(super) name: &'static str,
}

// SAFETY: a function handle is a name for something in the context; the driver serialises its use.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// Blocks, threads of a block, and bytes of dynamic shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub grid: [u32; 2],
    pub threads: u32,
    pub shared: u32,
}

/// A stream to launch on, and how.
#[derive(Clone, Debug)]
pub struct Launcher {
    stream: Arc<CudaStream>,
    /// Programmatic dependent launch: a kernel's blocks may start before the kernel before it has ended. Kernels are
    /// compiled for it by the same feature of the record.
    programmatic: bool,
    /// Of the device.
    pub multiprocessors: u32,
}

impl Launcher {
    pub fn new(stream: Arc<CudaStream>, programmatic: bool, multiprocessors: u32) -> Self {
        Self { stream, programmatic, multiprocessors }
    }

    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Blocks of so many threads that a multiprocessor has at once, at least one.
    pub(super) fn resident(&self, kernel: Kernel, threads: u32, shared: u32) -> Result<u32, KernelError> {
        // SAFETY: the function is one of a loaded module, which is never unloaded.
        let blocks = unsafe {
            cudarc::driver::result::occupancy::max_active_block_per_multiprocessor(
                kernel.function,
                threads as i32,
                shared as usize,
            )
        };
        let failed =
            |error: cudarc::driver::DriverError| KernelError::Launch { kernel: kernel.name, error: error.to_string() };
        Ok(blocks.map_err(failed)?.max(1).unsigned_abs())
    }

    /// Puts a kernel with one argument into the stream. Does nothing for an empty grid.
    ///
    /// # Safety
    /// The kernel takes an argument of this type, and every address in it is one of memory of this context that holds
    /// as much as the kernel reads and writes, until the stream has run it.
    pub(super) unsafe fn launch<A: Copy>(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &A,
    ) -> Result<(), KernelError> {
        let Shape { grid, threads, shared } = shape;
        if grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: the attribute is plain data, for which zeros are a value.
        let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
        let config = sys::CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: self.stream.cu_stream(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(self.programmatic),
        };
        let mut parameters = [std::ptr::from_ref(arguments).cast_mut().cast::<c_void>()];
        // SAFETY: the configuration and its attribute live until the call returns; the kernel has one parameter, of
        // this type, by this function's contract.
        let result = unsafe {
            sys::cuLaunchKernelEx(&raw const config, kernel.function, parameters.as_mut_ptr(), std::ptr::null_mut())
        };
        result.result().map_err(|error| KernelError::Launch { kernel: kernel.name, error: error.to_string() })
    }
}

/// `count` in pieces of `each`, as a grid's side.
pub(super) fn blocks(count: u64, each: u32) -> u32 {
    u32::try_from(count.div_ceil(u64::from(each))).unwrap_or(u32::MAX)
}
