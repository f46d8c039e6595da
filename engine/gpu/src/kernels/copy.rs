//! Copies of rows, and the sum of two buffers.

use super::launch::{Shape, blocks};
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

const THREADS: u32 = 256;
/// Elements of one access.
const PIECE: u32 = 8;
/// Accesses of a thread before a row gets another block. The outputs that a draft model keeps for 256 sequences are one row
/// of 2 MiB, which took one block 0.05 ms.
const PIECES: u32 = 4;
/// More blocks of a row than run at once would gain nothing.
const MOST_BLOCKS: u32 = 256;

pub(super) struct CopyKernels {
    gather: [Kernel; 2],
    columns: [Kernel; 2],
    add: [Kernel; 2],
    widen: Kernel,
}

impl CopyKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        let kernel = |name| module.kernel(name, 0);
        Ok(Self {
            gather: [kernel("gather_rows")?, kernel("gather_rows_narrow")?],
            columns: [kernel("copy_into_columns")?, kernel("copy_into_columns_narrow")?],
            add: [kernel("add_in_place")?, kernel("add_in_place_narrow")?],
            widen: kernel("widen")?,
        })
    }
}

/// `output[k] = input[rows[k]]`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// `[count]` u32.
    pub rows: u64,
    /// `[…, width]` bf16.
    pub input: u64,
    /// `[count, width]` bf16.
    pub output: u64,
    pub width: u32,
    pub count: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn gather(launcher: &Launcher, kernels: &KernelSet, gather: &Gather) -> Result<(), KernelError> {
    let (kernel, shape) = rows(kernels.copy.gather, gather.count, gather.width, gather.width);
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, gather) }
}

/// Whole rows of `width` into columns `offset..offset + width` of rows of `target_width`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyColumns {
    /// `[rows, width]` bf16.
    pub source: u64,
    /// `[rows, target_width]` bf16.
    pub target: u64,
    pub width: u32,
    pub target_width: u32,
    pub offset: u32,
    pub rows: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn copy_columns(launcher: &Launcher, kernels: &KernelSet, copy: &CopyColumns) -> Result<(), KernelError> {
    let aligned = copy.width | copy.target_width | copy.offset;
    let (kernel, shape) = rows(kernels.copy.columns, copy.rows, copy.width, aligned);
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, copy) }
}

/// A block per row, several where it is long; in pieces where `aligned` is a multiple of them.
fn rows([pieces, elements]: [Kernel; 2], rows: u32, width: u32, aligned: u32) -> (Kernel, Shape) {
    let (kernel, each) = if aligned.is_multiple_of(PIECE) { (pieces, PIECE) } else { (elements, 1) };
    let threads = (width / each).next_multiple_of(32).clamp(32, THREADS);
    let blocks = width.div_ceil(each * threads * PIECES).clamp(1, MOST_BLOCKS);
    (kernel, Shape { grid: [rows, blocks], threads, shared: 0 })
}

/// `target += addend`, bf16.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Add {
    pub addend: u64,
    pub target: u64,
    pub elements: u64,
}

/// # Safety
/// As this module says.
pub unsafe fn add(launcher: &Launcher, kernels: &KernelSet, add: &Add) -> Result<(), KernelError> {
    let [pieces, elements] = kernels.copy.add;
    let wide = add.elements.is_multiple_of(u64::from(PIECE));
    let (kernel, each) = if wide { (pieces, PIECE) } else { (elements, 1) };
    let work = add.elements.div_ceil(u64::from(each));
    let shape = Shape { grid: [blocks(work, THREADS), 1], threads: THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, add) }
}

/// `target = source`, from bf16 to f32.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Widen {
    pub source: u64,
    pub target: u64,
    pub elements: u64,
}

/// # Safety
/// As this module says.
pub unsafe fn widen(launcher: &Launcher, kernels: &KernelSet, widen: &Widen) -> Result<(), KernelError> {
    let shape = Shape { grid: [blocks(widen.elements, THREADS), 1], threads: THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.copy.widen, shape, widen) }
}
