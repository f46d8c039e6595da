//! Sums with residual and norm in the same kernel.

use engine::collective::space::{self, FUSED_ROW, PACKET};

use super::{AllReduceKernels, Element, GroupView, REDUCE_THREADS, Shots, WARP, unless_fits};
use crate::kernels::launch::Shape;
use crate::kernels::{Kernel, KernelError, Launcher};

/// Threads of a block at most, where a row is one packet for each thread.
pub(super) const NARROW_THREADS: u32 = 896;
const ROW_TOO_WIDE: &str = "a block keeps a row in registers, 1536 packets of 16 bytes";

/// What a fused norm writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOutput {
    /// Elements, as the input.
    Element,
    /// E4M3 bytes, `value / scale`; one scale, given.
    Fp8Tensor,
    /// E4M3 bytes; a scale per row, written: the row's largest magnitude over 448.
    Fp8Token,
    /// E2M1 half bytes in blocks of 16 columns with an E4M3 scale each, after a given global scale.
    Nvfp4,
}

/// A sum, `residual += sum`, and `output = rms_norm(residual)`.
#[derive(Clone, Copy, Debug)]
pub struct ReduceNorm {
    pub element: Element,
    pub format: NormOutput,
    /// `[rows, width]`, in part overwritten.
    pub addend: u64,
    /// `[rows, width]`.
    pub residual: u64,
    /// `[width]` f32.
    pub weight: u64,
    /// `[rows, width]` in `format`.
    pub output: u64,
    /// Of quantised formats: one f32, or one per row for [`NormOutput::Fp8Token`].
    pub scale: u64,
    /// Of [`NormOutput::Nvfp4`]: `[rows, width / 16]` bytes.
    pub block_scales: u64,
    pub rows: u32,
    pub width: u32,
    pub epsilon: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ReduceNormArguments {
    group: GroupView,
    addend: u64,
    residual: u64,
    weight: u64,
    output: u64,
    scale: u64,
    block_scales: u64,
    rows: u32,
    width: u32,
    epsilon: f32,
    aligned: u32,
}

/// The same for a fused sum.
pub fn norm_space(shots: Shots, ranks: u64, element: Element, rows: u64, width: u64) -> u64 {
    let row_bytes = width * element.bytes();
    match shots {
        Shots::One => space::fused_one_shot(ranks, rows, row_bytes),
        Shots::Two => space::fused_two_shot(ranks, rows, row_bytes),
    }
}

/// Sum, residual and norm. Every rank calls it in the same order with the same shape.
///
/// # Safety
/// As this module says; and the group's addresses are those of a group in order.
pub unsafe fn reduce_norm(
    launcher: &Launcher,
    kernels: &AllReduceKernels,
    shots: Shots,
    group: &GroupView,
    norm: &ReduceNorm,
) -> Result<(), KernelError> {
    let ReduceNorm { element, addend, residual, weight, output, scale, block_scales, rows, width, epsilon, .. } = *norm;
    let row = u64::from(width) * element.bytes();
    let aligned = [row, addend, residual, output, weight].iter().all(|place| place.is_multiple_of(PACKET));
    let packets = u32::try_from(row.div_ceil(PACKET)).unwrap_or(u32::MAX);
    let narrow = (aligned && packets <= NARROW_THREADS).then(|| narrow_kernel(kernels, shots, norm)).flatten();
    let (kernel, pieces) = match narrow {
        Some(kernel) => (kernel, 1),
        None => (norm_kernel(kernels, shots, norm)?, packets.div_ceil(REDUCE_THREADS).max(1)),
    };
    unless_fits(kernel.name, norm_space(shots, group.ranks.into(), element, rows.into(), width.into()), group)?;
    if row > FUSED_ROW {
        return Err(KernelError::Shape { kernel: kernel.name, what: format!("a row of {width}"), why: ROW_TOO_WIDE });
    }
    if norm.format == NormOutput::Nvfp4 && !width.is_multiple_of(16) {
        let why = "scales are for 16 columns each";
        return Err(KernelError::Shape { kernel: kernel.name, what: format!("a row of {width}"), why });
    }
    let (group, aligned) = (*group, u32::from(aligned));
    let arguments = ReduceNormArguments {
        group,
        addend,
        residual,
        weight,
        output,
        scale,
        block_scales,
        rows,
        width,
        epsilon,
        aligned,
    };
    let threads = packets.div_ceil(pieces).next_multiple_of(WARP);
    let shape = Shape { grid: [rows.min(launcher.multiprocessors), 1], threads, shared: 0 };
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, &arguments) }
}

fn narrow_kernel(kernels: &AllReduceKernels, shots: Shots, norm: &ReduceNorm) -> Option<Kernel> {
    let number = match (shots, norm.element, norm.format) {
        (Shots::One, Element::Bf16, NormOutput::Element) => 0,
        (Shots::One, Element::F16, NormOutput::Element) => 1,
        (Shots::One, Element::Bf16, NormOutput::Fp8Tensor) => 2,
        (Shots::One, Element::Bf16, NormOutput::Fp8Token) => 3,
        _ => return None,
    };
    Some(kernels.narrow[number])
}

fn norm_kernel(kernels: &AllReduceKernels, shots: Shots, norm: &ReduceNorm) -> Result<Kernel, KernelError> {
    let (shots, element) = (shots as usize, norm.element as usize);
    let format = match norm.format {
        NormOutput::Element => return Ok(kernels.norm[shots][element]),
        NormOutput::Fp8Tensor => 0,
        NormOutput::Fp8Token => 1,
        NormOutput::Nvfp4 => 2,
    };
    let why = "quantised outputs are made from 16-bit elements";
    let refused = || KernelError::Shape { kernel: "allreduce_norm", what: "f32 elements".to_owned(), why };
    kernels.quantised[shots].get(element).map(|formats| formats[format]).ok_or_else(refused)
}
