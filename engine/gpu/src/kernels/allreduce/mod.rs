//! Sums over ranks: `one_shot` and `two_shot`, alone and with residual and norm. The protocol is described beside the
//! kernels.

mod check;
mod reduce;
mod reduce_norm;
mod set;

use super::KernelError;

pub use check::{Check, CheckStep, check};
pub(super) use reduce::spread;
pub use reduce::{Reduce, reduce, reduce_space};
pub use reduce_norm::{NormOutput, ReduceNorm, norm_space, reduce_norm};
pub use set::AllReduceKernels;

const WARP: u32 = 32;
/// Threads of a block at most.
const REDUCE_THREADS: u32 = 384;

/// How elements of a message are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Bf16,
    F16,
    F32,
}

impl Element {
    pub const ALL: [Self; 3] = [Self::Bf16, Self::F16, Self::F32];

    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

/// One push of everything to everyone, or a sum of a part by each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shots {
    One,
    Two,
}

/// A group of ranks as one of them sees it: the kernels' `Group`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GroupView {
    /// Windows of all ranks, in rank order, `window` bytes apart.
    pub windows: u64,
    pub window: u64,
    /// Sequence and state, 8 bytes in this rank's memory.
    pub progress: u64,
    /// The host's abort word, 4 bytes, and this rank's report, 8 bytes.
    pub abort: u64,
    pub report: u64,
    /// Bytes of half a window.
    pub half: u64,
    /// Nanoseconds.
    pub patience: u64,
    pub rank: u32,
    pub ranks: u32,
    /// Which call of the engine this is, 24 bits.
    pub call: u32,
    pub reserved: u32,
}

/// Refuses what does not fit half a window.
fn unless_fits(kernel: &'static str, needed: u64, group: &GroupView) -> Result<(), KernelError> {
    if needed <= group.half {
        return Ok(());
    }
    let what = format!("a message that needs {needed} bytes of a window that has {}", group.half);
    Err(KernelError::Shape { kernel, what, why: "windows are made once, at the start, for the plan's largest message" })
}
