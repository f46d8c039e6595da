use crate::weights::WeightType;

/// Why a device did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    #[error("{operation}: the device has no room for {bytes} more bytes")]
    Memory { operation: &'static str, bytes: usize },
    #[error("{operation}: this backend cannot use weights of type {kind}")]
    WeightType { operation: &'static str, kind: WeightType },
    #[error("the step has {actual} {what}, more than the {limit} that were reserved at start")]
    StepTooLarge { what: &'static str, actual: usize, limit: usize },
    /// The device or its driver failed; nothing further can run on it.
    #[error("{operation}: {message}")]
    Device { operation: &'static str, message: String },
}
