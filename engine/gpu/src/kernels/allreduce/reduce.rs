//! Sums alone.

use engine::collective::space::{self, PACKET};

use super::{AllReduceKernels, Element, GroupView, REDUCE_THREADS, Shots, WARP, unless_fits};
use crate::kernels::launch::Shape;
use crate::kernels::{KernelError, Launcher};

/// A sum of `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reduce {
    pub element: Element,
    pub input: u64,
    /// May be the input.
    pub output: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ReduceArguments {
    group: GroupView,
    input: u64,
    output: u64,
    bytes: u64,
    aligned: u32,
    reserved: u32,
}

/// Bytes of half a window that a sum needs.
pub fn reduce_space(shots: Shots, ranks: u64, bytes: u64) -> u64 {
    match shots {
        Shots::One => space::one_shot(ranks, bytes),
        Shots::Two => space::two_shot(ranks, bytes),
    }
}

/// The sum over all ranks. Every rank calls it in the same order with the same size; `blocks` may differ.
///
/// # Safety
/// As this module says; and the group's addresses are those of a group in order.
pub unsafe fn reduce(
    launcher: &Launcher,
    kernels: &AllReduceKernels,
    shots: Shots,
    group: &GroupView,
    message: &Reduce,
    blocks: Option<[u32; 2]>,
) -> Result<(), KernelError> {
    let Reduce { element, input, output, bytes } = *message;
    let kernel = kernels.reduce[shots as usize][element as usize];
    unless_fits(kernel.name, reduce_space(shots, u64::from(group.ranks), bytes), group)?;
    let aligned = u32::from(input.is_multiple_of(PACKET) && output.is_multiple_of(PACKET));
    let arguments = ReduceArguments { group: *group, input, output, bytes, aligned, reserved: 0 };
    let packets = bytes.div_ceil(PACKET);
    let share = if shots == Shots::One { packets } else { packets.div_ceil(u64::from(group.ranks)) };
    let [grid, threads] = blocks.unwrap_or_else(|| spread(share, launcher.multiprocessors));
    let shape = Shape { grid: [grid.clamp(1, launcher.multiprocessors), 1], threads, shared: 0 };
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, &arguments) }
}

/// Blocks and threads for `packets` packets. All blocks are on the device at once: one waits for what others send.
pub(in crate::kernels) fn spread(packets: u64, multiprocessors: u32) -> [u32; 2] {
    let packets = u32::try_from(packets).unwrap_or(u32::MAX);
    let threads = packets.div_ceil(multiprocessors).next_multiple_of(WARP).clamp(4 * WARP, REDUCE_THREADS);
    [packets.div_ceil(threads).clamp(1, multiprocessors), threads]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_blocks_are_on_the_device_at_once_and_cover_the_packets() {
        for packets in [1, 31, 129, 4096, 65_536, 1 << 22] {
            let [blocks, threads] = spread(packets, 132);
            assert!((1..=132).contains(&blocks) && threads <= REDUCE_THREADS && threads.is_multiple_of(WARP));
            assert!(u64::from(blocks * threads) >= packets.min(132 * u64::from(REDUCE_THREADS)), "{packets}");
        }
    }
}
