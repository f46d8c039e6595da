//! Loading compiled kernels into a context.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};

use super::{Kernel, KernelError};

/// A compiled unit in the driver's memory. Never unloaded: graphs and kernels name its functions.
pub(super) struct Module {
    unit: String,
    module: sys::CUmodule,
    /// Keeps the context, and with it the module.
    _context: Arc<CudaContext>,
}

impl Module {
    pub fn load(context: &Arc<CudaContext>, unit: &str, cubin: &[u8]) -> Result<Self, KernelError> {
        let error =
            |error: result::DriverError| KernelError::Module { unit: unit.to_owned(), error: error.to_string() };
        context.bind_to_thread().map_err(error)?;
        // SAFETY: the image is a whole cubin, which the driver copies.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) }.map_err(error)?;
        Ok(Self { unit: unit.to_owned(), module, _context: Arc::clone(context) })
    }

    /// The kernel, or none where the unit was compiled without it because the target lacks a feature.
    pub fn optional(&self, name: &'static str, shared: u32) -> Result<Option<Kernel>, KernelError> {
        let symbol = CString::new(name).expect("kernels have plain names");
        // SAFETY: the module was loaded and is never unloaded.
        match unsafe { result::module::get_function(self.module, symbol) } {
            Err(result::DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND)) => Ok(None),
            _ => self.kernel(name, shared).map(Some),
        }
    }

    /// The kernel, with leave to use `shared` bytes of dynamic shared memory.
    pub fn kernel(&self, name: &'static str, shared: u32) -> Result<Kernel, KernelError> {
        let error = |error: result::DriverError| KernelError::Missing {
            unit: self.unit.clone(),
            kernel: name.to_owned(),
            error: error.to_string(),
        };
        let symbol = CString::new(name).expect("kernels have plain names");
        // SAFETY: the module was loaded and is never unloaded.
        let function = unsafe { result::module::get_function(self.module, symbol) }.map_err(error)?;
        if shared > 0 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is one of this module.
            unsafe { result::function::set_function_attribute(function, attribute, shared as i32) }.map_err(error)?;
        }
        Ok(Kernel { function, name })
    }

    /// Most threads of a block that find registers for the kernel.
    pub fn most_threads(&self, kernel: Kernel) -> Result<u32, KernelError> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: the function is one of this module.
        let threads = unsafe { result::function::get_function_attribute(kernel.function, attribute) };
        let error = |error: result::DriverError| KernelError::Missing {
            unit: self.unit.clone(),
            kernel: kernel.name.to_owned(),
            error: error.to_string(),
        };
        Ok(threads.map_err(error)?.unsigned_abs())
    }
}

impl Kernel {
    /// Has multiprocessors give blocks all the shared memory that they have, as streamed products want it: where two kernels
    /// want it cut in other ways, blocks of one wait until all those of the other have ended.
    pub fn beside_streamed(self) -> Result<Self, KernelError> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the function's module is never unloaded.
        let set = unsafe { result::function::set_function_attribute(self.function, attribute, 100) };
        let missing = |error: result::DriverError| KernelError::Missing {
            unit: self.name.to_owned(),
            kernel: self.name.to_owned(),
            error: error.to_string(),
        };
        set.map_err(missing)?;
        Ok(self)
    }
}
