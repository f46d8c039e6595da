use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use engine::backend::BackendError;

use crate::library::Missing;

/// Why a GPU cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error("the driver runs CUDA up to {version}, and {oldest} is needed; update the NVIDIA driver to R570 or newer")]
    DriverTooOld { version: String, oldest: String },
    #[error("there is no GPU {ordinal}: the driver sees {count}; CUDA_VISIBLE_DEVICES may hide some")]
    NoSuchDevice { ordinal: usize, count: i32 },
    #[error("{call} failed: {message}")]
    Call { call: &'static str, message: String },
}

impl DeviceError {
    pub(crate) fn call(call: &'static str, error: DriverError) -> Self {
        Self::Call { call, message: text(error) }
    }
}

impl From<DeviceError> for BackendError {
    fn from(error: DeviceError) -> Self {
        Self::Device { operation: "start", message: error.to_string() }
    }
}

/// A failed call of the driver as the engine hears of it. Faults of kernels appear at the next call that waits.
pub fn backend_error(operation: &'static str, error: DriverError) -> BackendError {
    BackendError::Device { operation, message: text(error) }
}

/// The driver's name of the error and, for those that users meet, what it usually means.
fn text(error: DriverError) -> String {
    let hint = match error.0 {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS => "; a kernel touched memory that is not its own",
        CUresult::CUDA_ERROR_LAUNCH_FAILED => "; a kernel failed while it ran",
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE => "; the GPU's memory is defective",
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => "; another process has the GPU for itself",
        CUresult::CUDA_ERROR_NO_DEVICE => "; the driver sees no GPU",
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => "; the kernels were built for another architecture",
        _ => "",
    };
    format!("{error}{hint}")
}
