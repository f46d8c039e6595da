//! Inputs and comparisons of the self-test, on the device.

use super::{AllReduceKernels, Element};
use crate::kernels::launch::{Shape, blocks};
use crate::kernels::{KernelError, Launcher};

/// Inputs and expected sums of a check; see the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// u32, counts rounds.
    pub round: u64,
    pub data: u64,
    /// Two u32: wrong elements, and the first one's index plus one.
    pub wrong: u64,
    pub elements: u64,
    pub salt: u32,
    pub rank: u32,
    pub ranks: u32,
    /// Of [`delay`] alone: nanoseconds at most.
    pub delay: u32,
}

/// What a check does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStep {
    /// Fills `data` with this rank's input.
    Fill(Element),
    /// Compares `data` with the sum, bit for bit, and overwrites it.
    Compare(Element),
    NextRound,
    Delay,
}

/// # Safety
/// As this module says.
pub unsafe fn check(
    launcher: &Launcher,
    kernels: &AllReduceKernels,
    step: CheckStep,
    check: &Check,
) -> Result<(), KernelError> {
    let spread = Shape { grid: [blocks(check.elements, 1024).clamp(1, 512), 1], threads: 256, shared: 0 };
    let single = Shape { grid: [1, 1], threads: 1, shared: 0 };
    let (kernel, shape) = match step {
        CheckStep::Fill(element) => (kernels.fill[element as usize], spread),
        CheckStep::Compare(element) => (kernels.check[element as usize], spread),
        CheckStep::NextRound => (kernels.next_round, single),
        CheckStep::Delay => (kernels.delay, single),
    };
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, check) }
}
