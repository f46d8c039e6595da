//! Sums over ranks: `one_shot` and `two_shot`, alone and with residual and norm. The protocol is described beside the
//! kernels.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use engine::collective::space::{self, FUSED_ROW, PACKET};

use super::launch::Shape;
use super::module::Module;
use super::multimem::MultimemKernels;
use super::{Kernel, KernelError, Launcher};
use crate::compile::{Unit, units};

const WARP: u32 = 32;
/// Threads of a block at most.
const REDUCE_THREADS: u32 = 384;
const NARROW_THREADS: u32 = 896;
const ROW_TOO_WIDE: &str = "a block keeps a row in registers, 1536 packets of 16 bytes";

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

/// One push of everything to everyone, or a sum of a part by each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shots {
    One,
    Two,
}

pub struct AllReduceKernels {
    reduce: [[Kernel; 3]; 2],
    /// By shots; f32 has no quantised outputs.
    norm: [[Kernel; 3]; 2],
    quantised: [[[Kernel; 3]; 2]; 2],
    /// One-shot for rows of up to [`NARROW_THREADS`] packets: bf16, f16, and bf16 to fp8 by tensor and by token.
    narrow: [Kernel; 4],
    pub(super) gather: Kernel,
    pub(super) multimem: MultimemKernels,
    fill: [Kernel; 3],
    check: [Kernel; 3],
    next_round: Kernel,
    delay: Kernel,
}

impl AllReduceKernels {
    /// What is compiled for collectives.
    pub fn units() -> Vec<Unit> {
        let ours = |unit: &Unit| unit.name().starts_with("allreduce") || unit.name() == "allgather";
        units(&[]).into_iter().filter(ours).collect()
    }

    /// Loads [`AllReduceKernels::units`]. `cubin` gives a unit's compiled form.
    pub fn load<E: From<KernelError>>(
        context: &Arc<CudaContext>,
        mut cubin: impl FnMut(&Unit) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let mut modules = Vec::new();
        for unit in Self::units() {
            modules.push((unit.name().to_owned(), Module::load(context, unit.name(), &cubin(&unit)?)?));
        }
        let module = |unit: &str| {
            let module = modules.iter().find(|(other, _)| other == unit).map(|(_, module)| module);
            module.expect("every unit that is asked for is listed")
        };
        let kernel = |unit: &str, name: &'static str| -> Result<Kernel, KernelError> {
            module(unit).kernel(name, 0)?.beside_streamed()
        };
        let three = |unit: &str, [a, b, c]: [&'static str; 3]| -> Result<[Kernel; 3], KernelError> {
            Ok([kernel(unit, a)?, kernel(unit, b)?, kernel(unit, c)?])
        };
        let norm = "allreduce_norm";
        Ok(Self {
            reduce: [
                three("allreduce", ["one_shot_bf16", "one_shot_f16", "one_shot_f32"])?,
                three("allreduce", ["two_shot_bf16", "two_shot_f16", "two_shot_f32"])?,
            ],
            norm: [
                three(norm, ["one_shot_norm_bf16", "one_shot_norm_f16", "one_shot_norm_f32"])?,
                three(norm, ["two_shot_norm_bf16", "two_shot_norm_f16", "two_shot_norm_f32"])?,
            ],
            quantised: [
                [three(norm, ONE_SHOT_BF16)?, three(norm, ONE_SHOT_F16)?],
                [three(norm, TWO_SHOT_BF16)?, three(norm, TWO_SHOT_F16)?],
            ],
            narrow: [
                kernel(norm, "one_shot_norm_narrow_bf16")?,
                kernel(norm, "one_shot_norm_narrow_f16")?,
                kernel(norm, "one_shot_norm_narrow_bf16_fp8_tensor")?,
                kernel(norm, "one_shot_norm_narrow_bf16_fp8_token")?,
            ],
            gather: kernel("allgather", "all_gather")?,
            multimem: MultimemKernels::load(module("allreduce_multimem"))?,
            fill: three("allreduce_check", ["fill_bf16", "fill_f16", "fill_f32"])?,
            check: three("allreduce_check", ["check_bf16", "check_f16", "check_f32"])?,
            next_round: kernel("allreduce_check", "next_round")?,
            delay: kernel("allreduce_check", "delay")?,
        })
    }
}

const ONE_SHOT_BF16: [&str; 3] =
    ["one_shot_norm_bf16_fp8_tensor", "one_shot_norm_bf16_fp8_token", "one_shot_norm_bf16_nvfp4"];
const ONE_SHOT_F16: [&str; 3] =
    ["one_shot_norm_f16_fp8_tensor", "one_shot_norm_f16_fp8_token", "one_shot_norm_f16_nvfp4"];
const TWO_SHOT_BF16: [&str; 3] =
    ["two_shot_norm_bf16_fp8_tensor", "two_shot_norm_bf16_fp8_token", "two_shot_norm_bf16_nvfp4"];
const TWO_SHOT_F16: [&str; 3] =
    ["two_shot_norm_f16_fp8_tensor", "two_shot_norm_f16_fp8_token", "two_shot_norm_f16_nvfp4"];

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

/// Bytes of half a window that a sum needs.
pub fn reduce_space(shots: Shots, ranks: u64, bytes: u64) -> u64 {
    match shots {
        Shots::One => space::one_shot(ranks, bytes),
        Shots::Two => space::two_shot(ranks, bytes),
    }
}

/// The same for a fused sum.
pub fn norm_space(shots: Shots, ranks: u64, element: Element, rows: u64, width: u64) -> u64 {
    let row_bytes = width * element.bytes();
    match shots {
        Shots::One => space::fused_one_shot(ranks, rows, row_bytes),
        Shots::Two => space::fused_two_shot(ranks, rows, row_bytes),
    }
}

/// Refuses what does not fit half a window.
fn unless_fits(kernel: &'static str, needed: u64, group: &GroupView) -> Result<(), KernelError> {
    if needed <= group.half {
        return Ok(());
    }
    let what = format!("a message that needs {needed} bytes of a window that has {}", group.half);
    Err(KernelError::Shape { kernel, what, why: "windows are made once, at the start, for the plan's largest message" })
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
pub(super) fn spread(packets: u64, multiprocessors: u32) -> [u32; 2] {
    let packets = u32::try_from(packets).unwrap_or(u32::MAX);
    let threads = packets.div_ceil(multiprocessors).next_multiple_of(WARP).clamp(4 * WARP, REDUCE_THREADS);
    [packets.div_ceil(threads).clamp(1, multiprocessors), threads]
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
    let spread =
        Shape { grid: [super::launch::blocks(check.elements, 1024).clamp(1, 512), 1], threads: 256, shared: 0 };
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
