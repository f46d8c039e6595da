use super::launch::{Shape, blocks};
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

/// Threads of the kernel for blocks of columns, a warp each.
const BLOCK_THREADS: u32 = 128;
const WARP: u32 = 32;
const MOST_THREADS: u32 = 1024;
/// A row waits in shared memory in f32; wider ones would need more than every architecture has.
const WIDEST: u32 = 24 * 1024;
pub(super) const LARGEST_SHARED: u32 = WIDEST * size_of::<f32>() as u32;

pub(super) struct NormKernels {
    rms_norm: Kernel,
    add_rms_norm: Kernel,
    rms_norm_blocks: Kernel,
}

impl NormKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        let shared = LARGEST_SHARED;
        Ok(Self {
            rms_norm: module.kernel("rms_norm", shared)?.beside_streamed()?,
            add_rms_norm: module.kernel("add_rms_norm", shared)?.beside_streamed()?,
            rms_norm_blocks: module.kernel("rms_norm_blocks", 0)?.beside_streamed()?,
        })
    }
}

/// `output = input / sqrt(mean(input^2) + epsilon) * weight`, mean over a row.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// `[rows, width]` bf16.
    pub input: u64,
    /// Of [`add_rms_norm`] alone: `[rows, width]` bf16, becomes `residual + input`, which is then what is normalised.
    pub residual: u64,
    /// `[width]` f32.
    pub weight: u64,
    /// `[rows, width]` bf16; may be the input.
    pub output: u64,
    /// A multiple of 8.
    pub width: u32,
    pub epsilon: f32,
    pub rows: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn rms_norm(launcher: &Launcher, kernels: &KernelSet, norm: &Norm) -> Result<(), KernelError> {
    // SAFETY: this function's contract.
    unsafe { launch(launcher, kernels.norm.rms_norm, norm) }
}

/// # Safety
/// As this module says.
pub unsafe fn add_rms_norm(launcher: &Launcher, kernels: &KernelSet, norm: &Norm) -> Result<(), KernelError> {
    // SAFETY: this function's contract.
    unsafe { launch(launcher, kernels.norm.add_rms_norm, norm) }
}

unsafe fn launch(launcher: &Launcher, kernel: Kernel, norm: &Norm) -> Result<(), KernelError> {
    let width = norm.width;
    KernelError::unless_pieces(kernel.name, "a row of", width)?;
    if width > WIDEST {
        let why = "a row is kept in shared memory, 96 KiB of it";
        return Err(KernelError::Shape { kernel: kernel.name, what: format!("a row of {width}"), why });
    }
    let threads = (width / 8).next_multiple_of(WARP).min(MOST_THREADS);
    let shape = Shape { grid: [norm.rows, 1], threads, shared: width * 4 };
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, norm) }
}

/// The norm in place over `count` blocks of `width` columns of each row, `stride` apart, the first at `offset`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NormBlocks {
    /// `[rows, row]` bf16.
    pub buffer: u64,
    /// `[width]` f32.
    pub weight: u64,
    pub row: u32,
    pub offset: u32,
    pub count: u32,
    pub stride: u32,
    pub width: u32,
    pub rows: u32,
    pub epsilon: f32,
}

/// # Safety
/// As this module says.
pub unsafe fn rms_norm_blocks(launcher: &Launcher, kernels: &KernelSet, norm: &NormBlocks) -> Result<(), KernelError> {
    let warps = u64::from(norm.rows) * u64::from(norm.count);
    let shape = Shape { grid: [blocks(warps, BLOCK_THREADS / WARP), 1], threads: BLOCK_THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.norm.rms_norm_blocks, shape, norm) }
}
