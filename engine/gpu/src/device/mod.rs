//! One GPU as the backend uses it: context, stream, memory, recorded passes.

mod error;
mod memory;
mod products;
mod recording;
mod staging;

use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, CudaStream};

use crate::library::{Library, require};

pub use error::{DeviceError, backend_error};
pub use memory::{Account, Allocation, MemoryReport, Purpose};
pub use products::{Products, Shape};
pub use recording::{Reach, Recordings};
pub use staging::{Pinned, Uploader};

/// Oldest driver that the bindings work with, as `cuDriverGetVersion` counts: CUDA 12.8, driver R570.
const OLDEST_DRIVER: i32 = 12_080;

/// An opened GPU. All work of a rank goes to one stream, in order.
#[derive(Clone)]
pub struct Gpu {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub account: Account,
    /// Multiprocessors: how many blocks fill the device.
    pub multiprocessors: u32,
}

impl Gpu {
    /// Opens device `ordinal`, as CUDA counts. Errors: no driver, one that is too old, no such device.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        require(Library::Driver).map_err(|missing| DeviceError::Missing(missing.clone()))?;
        cudarc::driver::result::init().map_err(|error| DeviceError::call("cuInit", error))?;
        let version = driver_version()?;
        if version < OLDEST_DRIVER {
            return Err(DeviceError::DriverTooOld { version: shown(version), oldest: shown(OLDEST_DRIVER) });
        }
        let count = CudaContext::device_count().map_err(|error| DeviceError::call("cuDeviceGetCount", error))?;
        if ordinal >= usize::try_from(count).unwrap_or(0) {
            return Err(DeviceError::NoSuchDevice { ordinal, count });
        }
        let context =
            CudaContext::new(ordinal).map_err(|error| DeviceError::call("cuDevicePrimaryCtxRetain", error))?;
        // SAFETY: no slice of cudarc's is ever made here, so there is nothing that its events would guard.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(|error| DeviceError::call("cuStreamCreate", error))?;
        let multiprocessors = context
            .attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(|error| DeviceError::call("cuDeviceGetAttribute", error))?;
        let account = Account::new(&context)?;
        Ok(Self { context, stream, account, multiprocessors: multiprocessors.unsigned_abs() })
    }

    /// Whether everything that was launched has ended.
    pub fn idle(&self, operation: &'static str) -> Result<bool, engine::backend::BackendError> {
        use cudarc::driver::sys::{CUresult, cuStreamQuery};
        // SAFETY: the stream lives as long as this.
        match unsafe { cuStreamQuery(self.stream.cu_stream()) }.result() {
            Ok(()) => Ok(true),
            Err(error) if error.0 == CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(backend_error(operation, error)),
        }
    }

    /// Waits until everything that was launched has ended.
    pub fn synchronise(&self, operation: &'static str) -> Result<(), engine::backend::BackendError> {
        self.stream.synchronize().map_err(|error| backend_error(operation, error))
    }
}

fn driver_version() -> Result<i32, DeviceError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to a place that lives through the call.
    let code = unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut version) };
    code.result().map_err(|error| DeviceError::call("cuDriverGetVersion", error))?;
    Ok(version)
}

/// 12080 → "12.8".
fn shown(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
