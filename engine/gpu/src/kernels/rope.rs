//! Rotary embedding and the cache's new rows.

use super::launch::{Shape, blocks};
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

const THREADS: u32 = 256;
/// Heads of a block of the fused kernel, a warp each, and the widest of them.
const HEADS_PER_BLOCK: u32 = 4;
const WIDEST_HEAD: u32 = 512;

pub(super) struct RopeKernels {
    rotate: Kernel,
    append: Kernel,
    rotate_append: Kernel,
    move_rows: Kernel,
}

impl RopeKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        Ok(Self {
            rotate: module.kernel("rotate", 0)?.beside_streamed()?,
            append: module.kernel("append", 0)?.beside_streamed()?,
            rotate_append: module.kernel("rotate_append", 0)?.beside_streamed()?,
            move_rows: module.kernel("move_rows", 0)?,
        })
    }
}

/// Cosines and sines by position.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Angles {
    /// `[positions, pairs]` f32.
    pub cosines: u64,
    /// `[positions, pairs]` f32.
    pub sines: u64,
    pub pairs: u32,
    /// 1: pairs are (2i, 2i+1); 0: (i, i + pairs).
    pub interleaved: u32,
}

/// Rotates `count` blocks of `2 * pairs` columns of each row in place, `stride` apart, the first at `offset`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rotate {
    /// `[rows]` u32.
    pub positions: u64,
    pub angles: Angles,
    /// `[rows, row]` bf16.
    pub buffer: u64,
    pub row: u32,
    pub offset: u32,
    pub count: u32,
    pub stride: u32,
    pub rows: u32,
    pub reserved: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn rotate(launcher: &Launcher, kernels: &KernelSet, rotate: &Rotate) -> Result<(), KernelError> {
    let pairs = u64::from(rotate.rows) * u64::from(rotate.count) * u64::from(rotate.angles.pairs);
    let shape = Shape { grid: [blocks(pairs, THREADS), 1], threads: THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.rope.rotate, shape, rotate) }
}

/// One layer of the cache: keys and values of `[pages, heads, 16, padded]` bf16 each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CachePlace {
    pub keys: u64,
    pub values: u64,
    pub heads: u32,
    /// The head dimension, rounded up to a multiple of 16.
    pub padded: u32,
}

/// Writes the keys and values of every row to the row's slot.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Append {
    /// `[rows]` u32: page times 16 plus the position in it, `NONE` for a row that is not kept.
    pub slots: u64,
    /// `[rows, row]` bf16.
    pub source: u64,
    pub cache: CachePlace,
    pub row: u32,
    pub key_offset: u32,
    pub key_stride: u32,
    pub value_offset: u32,
    pub value_stride: u32,
    /// The head dimension.
    pub width: u32,
    pub rows: u32,
    pub reserved: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn append(launcher: &Launcher, kernels: &KernelSet, append: &Append) -> Result<(), KernelError> {
    let elements = append.cache.heads * append.cache.padded;
    let threads = elements.next_multiple_of(32).clamp(32, THREADS);
    let shape = Shape { grid: [append.rows, 2], threads, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.rope.append, shape, append) }
}

/// An RMS norm over each query and key head, before the rotation. Addresses of `[width]` f32, or 0 for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadNorm {
    pub query: u64,
    pub key: u64,
    pub epsilon: f32,
    pub reserved: u32,
}

/// Norm over heads, rotation and append in one kernel. Rotated queries go back to the buffer, rotated keys and the
/// values to the cache; the keys in the buffer stay as they were.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RotateAppend {
    /// `[rows]` u32.
    pub positions: u64,
    /// As in [`Append`].
    pub slots: u64,
    pub angles: Angles,
    /// `[rows, query heads + 2 * cached heads, width]` bf16: queries, keys, values.
    pub buffer: u64,
    pub cache: CachePlace,
    pub norm: HeadNorm,
    pub query_heads: u32,
    /// The head dimension, of which the first `2 * pairs` are rotated.
    pub width: u32,
    pub rows: u32,
    pub reserved: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn rotate_append(
    launcher: &Launcher,
    kernels: &KernelSet,
    arguments: &RotateAppend,
) -> Result<(), KernelError> {
    if arguments.width > WIDEST_HEAD {
        let (what, why) = (format!("heads of {}", arguments.width), "the widest are 512");
        return Err(KernelError::Shape { kernel: "rotate_append", what, why });
    }
    let heads = arguments.query_heads + 2 * arguments.cache.heads;
    let grid = [heads.div_ceil(HEADS_PER_BLOCK), arguments.rows];
    let shape = Shape { grid, threads: HEADS_PER_BLOCK * 32, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.rope.rotate_append, shape, arguments) }
}

/// Copies cached rows of every layer, in the order of the step's moves.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MoveRows {
    /// [`crate::step::StepAddresses::counts`].
    pub counts: u64,
    /// [`crate::step::StepAddresses::moves`].
    pub moves: u64,
    /// The first layer.
    pub cache: CachePlace,
    /// Elements from a layer's keys to the next one's; the same for values.
    pub layer_stride: u64,
    pub layers: u32,
    pub reserved: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn move_rows(launcher: &Launcher, kernels: &KernelSet, arguments: &MoveRows) -> Result<(), KernelError> {
    let shape = Shape { grid: [arguments.layers, 2], threads: 128, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.rope.move_rows, shape, arguments) }
}
