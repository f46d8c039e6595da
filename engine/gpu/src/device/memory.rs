//! Device memory, and the account of what it is used for.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUdeviceptr, CUresult};
use cudarc::driver::{CudaContext, CudaStream, result};
use engine::backend::BackendError;
use serde::Serialize;

use super::error::{DeviceError, backend_error};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Weights,
    Cache,
    Activations,
    Workspace,
}

/// Bytes by purpose. Clones share it.
#[derive(Clone)]
pub struct Account {
    bytes: Arc<[AtomicU64; 4]>,
    context: Arc<CudaContext>,
    /// Used on the device by everything else when it was opened.
    before: u64,
}

/// The account beside the driver's own figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    pub weights: u64,
    pub cache: u64,
    pub activations: u64,
    pub workspace: u64,
    /// What the driver counts as used since the device was opened: the above, rounded up to its pages, with modules
    /// and recorded passes.
    pub used: u64,
    pub total: u64,
    /// Recorded passes, and how long recording them took.
    pub passes: usize,
    pub milliseconds: u64,
}

impl Account {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DeviceError> {
        let (free, total) = context.mem_get_info().map_err(|error| DeviceError::call("cuMemGetInfo", error))?;
        Ok(Self { bytes: Arc::default(), context: Arc::clone(context), before: (total - free) as u64 })
    }

    /// Counts memory that is not an [`Allocation`], for as long as the device is open.
    pub fn charge(&self, purpose: Purpose, bytes: usize) {
        self.bytes[purpose as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn report(&self) -> Result<MemoryReport, DeviceError> {
        let (free, total) = self.context.mem_get_info().map_err(|error| DeviceError::call("cuMemGetInfo", error))?;
        let of = |purpose: Purpose| self.bytes[purpose as usize].load(Ordering::Relaxed);
        Ok(MemoryReport {
            weights: of(Purpose::Weights),
            cache: of(Purpose::Cache),
            activations: of(Purpose::Activations),
            workspace: of(Purpose::Workspace),
            used: ((total - free) as u64).saturating_sub(self.before),
            total: total as u64,
            passes: 0,
            milliseconds: 0,
        })
    }
}

impl MemoryReport {
    /// Bytes that the account does not explain.
    pub fn unexplained(&self) -> u64 {
        self.used.saturating_sub(self.weights + self.cache + self.activations + self.workspace)
    }
}

/// A piece of device memory. Freed when dropped; launched work that uses it must have ended by then.
pub struct Allocation {
    pointer: CUdeviceptr,
    bytes: usize,
    purpose: Purpose,
    account: Account,
    /// Stays on its rank's thread, like everything of a rank.
    _thread: std::marker::PhantomData<Rc<()>>,
}

impl Allocation {
    /// Zeroed memory, at least one byte. Errors: the device has no room for it.
    pub fn zeroed(
        stream: &CudaStream,
        account: &Account,
        bytes: usize,
        purpose: Purpose,
        operation: &'static str,
    ) -> Result<Self, BackendError> {
        let allocation = Self::new(account, bytes, purpose, operation)?;
        // SAFETY: the range was just allocated.
        let zeroed = unsafe { result::memset_d8_async(allocation.pointer, 0, allocation.bytes, stream.cu_stream()) };
        zeroed.map_err(|error| backend_error(operation, error))?;
        Ok(allocation)
    }

    /// Memory of unknown content, at least one byte. Errors: the device has no room for it.
    pub fn new(
        account: &Account,
        bytes: usize,
        purpose: Purpose,
        operation: &'static str,
    ) -> Result<Self, BackendError> {
        account.context.bind_to_thread().map_err(|error| backend_error(operation, error))?;
        let bytes = bytes.max(1);
        // SAFETY: the pointer is freed once, by `drop`.
        let pointer = unsafe { result::malloc_sync(bytes) }.map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => BackendError::Memory { operation, bytes },
            _ => backend_error(operation, error),
        })?;
        account.bytes[purpose as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        let account = account.clone();
        Ok(Self { pointer, bytes, purpose, account, _thread: std::marker::PhantomData })
    }

    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.account.bytes[self.purpose as usize].fetch_sub(self.bytes as u64, Ordering::Relaxed);
        // SAFETY: allocated by `new`, freed only here. `cuMemFree` waits for work that uses the memory. After a fault
        // of the device it fails, and there is nothing left to do about that.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}
