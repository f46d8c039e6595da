//! The kernels and how they are launched: a typed function per operation, over raw device addresses.
//!
//! A launch allocates nothing and waits for nothing, so it can be captured into a graph. What changes from step to step
//! is read from the step's arrays ([`crate::step`]); grids depend on row counts alone. The functions are `unsafe`
//! because nobody can check a device address: the caller promises that each is memory of the launcher's context, as
//! large as the argument's documentation says, and stays so until the stream has run the kernel.
//!
//! Activations are bf16, sums are f32, norm weights, biases and angles are f32.

mod activation;
mod allgather;
mod allreduce;
mod attention;
mod copy;
mod embedding;
mod format;
mod launch;
mod logits;
mod module;
mod multimem;
mod norm;
mod product;
mod quantised;
mod rope;
mod sampling;
mod set;
mod shared;

pub use activation::{Activate, activate};
pub use allgather::{GatherColumns, all_gather};
pub use allreduce::{
    AllReduceKernels, Check, CheckStep, Element, GroupView, NormOutput, Reduce, ReduceNorm, Shots, check, norm_space,
    reduce, reduce_norm, reduce_space,
};
pub use attention::{Attend, AttentionSpace, Fresh, Near, attend};
pub(crate) use attention::{NEAR_CONTEXT, NEAR_DRAFTED, NEAR_ROWS, NEAR_SEQUENCES, near_rows, near_tiles};
pub use copy::{Add, CopyColumns, Gather, Widen, add, copy_columns, gather, widen};
pub use embedding::{Embed, embed};
pub use format::Format;
pub use launch::{Kernel, Launcher};
pub use logits::{LogitsChange, adjust_logits};
pub use multimem::{BufferView, multimem};
pub use norm::{Norm, NormBlocks, add_rms_norm, rms_norm, rms_norm_blocks};
pub use product::{
    MOST_PRODUCT_ROWS, PREFERRED_OF_SOME, PREFERRED_PRODUCT_ROWS, Product, SQUARES, chooses, gated_product, prefers,
    product,
};
pub use quantised::{Dequantise, QuantisedProduct, dequantise, gate_word, quantised_product};
pub use rope::{
    Angles, Append, CachePlace, HeadNorm, MoveRows, Rotate, RotateAppend, append, move_rows, rotate, rotate_append,
};
pub use sampling::{Argmax, Choice, Sample, SampleRow, argmax, sample};
pub use set::KernelSet;
pub use shared::{dynamic_shared_bytes, optional_shared_bytes};

/// Why a kernel was not loaded or not launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    #[error("the driver does not load the kernels of {unit}: {error}")]
    Module { unit: String, error: String },
    #[error("the compiled {unit} has no kernel {kernel}: {error}")]
    Missing { unit: String, kernel: String, error: String },
    #[error("kernel {kernel} was not launched: {error}")]
    Launch { kernel: &'static str, error: String },
    #[error("kernel {kernel} cannot take {what}: {why}")]
    Shape { kernel: &'static str, what: String, why: &'static str },
}

impl KernelError {
    /// Refuses what is not a multiple of eight elements, the width of one access.
    pub(crate) fn unless_pieces(kernel: &'static str, what: &str, width: u32) -> Result<(), Self> {
        let why = "kernels read 16 bytes at a time, so it must be a multiple of 8";
        if width.is_multiple_of(8) { Ok(()) } else { Err(Self::Shape { kernel, what: format!("{what} {width}"), why }) }
    }
}

impl From<KernelError> for engine::backend::BackendError {
    fn from(error: KernelError) -> Self {
        let operation = match &error {
            KernelError::Launch { kernel, .. } | KernelError::Shape { kernel, .. } => kernel,
            KernelError::Module { .. } | KernelError::Missing { .. } => "load kernels",
        };
        Self::Device { operation, message: error.to_string() }
    }
}
