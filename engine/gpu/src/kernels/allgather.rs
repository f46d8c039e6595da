//! Parts of all ranks side by side, and the message of one rank on all, through the windows of sums.

use engine::collective::space::PACKET;

use super::allreduce::{AllReduceKernels, GroupView, spread};
use super::launch::Shape;
use super::{KernelError, Launcher};

/// Bytes that widths are counted in.
const UNIT: u64 = 2;

/// What is gathered or copied. Widths are in bytes, multiples of two.
#[derive(Clone, Copy, Debug)]
pub struct GatherColumns {
    /// `[rows, width]`, narrower on the last ranks.
    pub input: u64,
    /// `[rows, total]`.
    pub output: u64,
    pub rows: u64,
    pub width: u64,
    pub total: u64,
    /// The rank whose message, of `total` bytes a row, goes to all; none to gather.
    pub root: Option<u32>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct GatherArguments {
    group: GroupView,
    input: u64,
    output: u64,
    rows: u32,
    width: u32,
    total: u32,
    only: u32,
    first: u32,
    count: u32,
    aligned: u32,
    reserved: u32,
}

/// Every rank calls it in the same order with the same sizes. Goes in as many launches as the window needs.
///
/// # Safety
/// As this module says; and the group's addresses are those of a group in order.
pub unsafe fn all_gather(
    launcher: &Launcher,
    kernels: &AllReduceKernels,
    group: &GroupView,
    message: &GatherColumns,
) -> Result<(), KernelError> {
    let GatherColumns { input, output, rows, width, total, root } = *message;
    let kernel = kernels.gather;
    let packets = (rows * width).div_ceil(PACKET);
    let small = |units: u64| u32::try_from(units).ok().filter(|units| *units < 1 << 31);
    let (Some(_), Some(wide)) = (small(rows * width / UNIT + PACKET), small(total / UNIT)) else {
        let why = "its parts are counted in 31 bits";
        return Err(KernelError::Shape { kernel: kernel.name, what: format!("{rows} rows of {total} bytes"), why });
    };
    let aligned = [input, output, width, total].iter().all(|place| place.is_multiple_of(PACKET));
    let each = (group.half / u64::from(group.ranks) / PACKET).max(1);
    for first in (0..packets).step_by(each as usize) {
        let count = each.min(packets - first) as u32;
        let arguments = GatherArguments {
            group: *group,
            input,
            output,
            rows: rows as u32,
            width: (width / UNIT) as u32,
            total: wide,
            only: root.unwrap_or(group.ranks),
            first: first as u32,
            count,
            aligned: u32::from(aligned),
            reserved: 0,
        };
        let [grid, threads] = spread(count.into(), launcher.multiprocessors);
        // SAFETY: this function's contract; the argument is the kernel's.
        unsafe { launcher.launch(kernel, Shape { grid: [grid, 1], threads, shared: 0 }, &arguments)? };
    }
    Ok(())
}
