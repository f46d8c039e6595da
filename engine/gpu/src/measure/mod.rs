//! Measuring and checking collectives on the GPUs of this machine: a thread per rank, inputs made on the devices, times
//! by events. What `archway bench allreduce` and `archway tune` print comes from here.

mod everything;
mod norm;
mod quantised;
mod rank;
pub(crate) mod reference;
mod soak;
mod stall;
mod sums;
mod timing;

use std::time::Duration;

use serde::Serialize;

use crate::collective::GaveUp;
use crate::compile::{CompileError, CompileTarget};
use crate::device::DeviceError;
use crate::kernels::{Element, KernelError};

pub use everything::check_everything;
pub use norm::{NormCase, NormTime, check_norms, time_norms};
pub use rank::{Rank, on_ranks};
pub use soak::{SoakPlan, SoakReport, soak};
pub use stall::check_stall;
pub use sums::{SumCase, SumTime, check_sums, time_sums};
pub use timing::{CALLS, Launches, ROUNDS, Times};

/// Which GPUs form the group, and what its kernels are.
#[derive(Clone, Debug)]
pub struct MeasurePlan {
    /// As CUDA counts, in rank order.
    pub devices: Vec<usize>,
    pub target: CompileTarget,
    /// Bytes of half a window: see [`crate::collective::GpuGroup::new`].
    pub half: usize,
    /// How long a rank waits for another before the group ends.
    pub patience: Duration,
    /// Kernels may start before the one before them has ended, where the target has the feature `pdl`.
    pub programmatic: bool,
}

/// The stack that figures belong to.
#[derive(Clone, Debug, Serialize)]
pub struct Stack {
    pub gpu: String,
    pub driver: String,
    pub nccl: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Backend(#[from] engine::backend::BackendError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    GaveUp(#[from] GaveUp),
}

impl From<cudarc::driver::DriverError> for MeasureError {
    fn from(error: cudarc::driver::DriverError) -> Self {
        Self::Device(DeviceError::call("driver", error))
    }
}

/// "bf16" and so on.
pub fn element(name: &str) -> Option<Element> {
    Element::ALL.into_iter().find(|element| element.name() == name)
}
