//! Bias, penalties and masks.

use bytemuck::{Pod, Zeroable};
use engine::sampler::LogitChange;

use super::launch::Shape;
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

const THREADS: u32 = 256;

pub(super) struct LogitsKernels {
    adjust: Kernel,
}

impl LogitsKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        Ok(Self { adjust: module.kernel("adjust_logits", 0)? })
    }
}

/// What is done to one token of a row. A row names a token once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
pub struct LogitsChange {
    pub token: u32,
    /// Added first.
    pub bias: f32,
    /// Times that the token is in the output.
    pub outputs: u32,
    /// [`LogitsChange::OCCURRED`] and [`LogitsChange::MASKED`].
    pub flags: u32,
}

impl From<&LogitChange> for LogitsChange {
    fn from(change: &LogitChange) -> Self {
        let LogitChange { token, bias, outputs, occurred, masked } = *change;
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        Self { token, bias, outputs, flags: flag(occurred, Self::OCCURRED) | flag(masked, Self::MASKED) }
    }
}

impl LogitsChange {
    /// The token is in the prompt or in the output.
    pub const OCCURRED: u32 = 1;
    /// The token cannot be chosen.
    pub const MASKED: u32 = 2;
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Arguments {
    logits: u64,
    rows: u64,
    changes: u64,
    vocabulary: u32,
}

/// Changes `count` rows of `logits` (`[count, vocabulary]` f32) in place. `rows` are [`super::SampleRow`]s, which say
/// which of `changes` are theirs.
///
/// # Safety
/// As this module says.
pub unsafe fn adjust_logits(
    launcher: &Launcher,
    kernels: &KernelSet,
    [logits, rows, changes]: [u64; 3],
    vocabulary: u32,
    count: u32,
) -> Result<(), KernelError> {
    let shape = Shape { grid: [count, 1], threads: THREADS, shared: 0 };
    let arguments = Arguments { logits, rows, changes, vocabulary };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.logits.adjust, shape, &arguments) }
}
