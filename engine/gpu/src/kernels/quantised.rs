//! Products with weights in blocks, and their conversion. Each format has kernels of its own.

use engine::model::Activation;

use super::format::Format;
use super::launch::{Shape, blocks};
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

/// Rows of the weight in a tile, and bytes of the sums that a warp has of it for eight rows of activations.
const TILE_ROWS: u32 = 16;
const SUMS: u32 = TILE_ROWS * 8 * size_of::<f32>() as u32;
/// Columns of a block.
const BLOCK: u32 = 32;
const CONVERT_THREADS: u32 = 256;

/// A kernel's sizes.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    /// Tiles of eight rows of activations.
    tiles: u32,
    /// Blocks of columns that a warp has under way, at most.
    ahead: u32,
    /// Most warps of a block, if the kernel's registers allow so many. A row of 1,536 columns is then under way as a whole.
    warps: u32,
}

/// For up to eight rows of activations, and for sixteen at once.
const SIZES: [Size; 2] = [
    Size { name: "quantised_8", tiles: 1, ahead: 3, warps: 16 },
    Size { name: "quantised_16", tiles: 2, ahead: 2, warps: 24 },
];

/// Of the largest block of threads.
pub(super) const LARGEST_SHARED: u32 = SIZES[1].shared(SIZES[1].warps);

impl Size {
    /// Bytes of shared memory of a block of `warps`: the sums of two tiles, and sums of squares.
    const fn shared(self, warps: u32) -> u32 {
        self.tiles * warps * (2 * SUMS + 8 * size_of::<f32>() as u32)
    }
}

/// A kernel with the most warps that a block of it may have.
#[derive(Clone, Copy)]
struct Loaded {
    kernel: Kernel,
    warps: u32,
}

/// Kernels of one format.
pub(super) struct QuantisedKernels {
    format: Format,
    /// In the order of [`SIZES`].
    products: [Loaded; 2],
    convert: Kernel,
}

impl QuantisedKernels {
    pub fn load(module: &Module, format: Format) -> Result<Self, KernelError> {
        let load = |size: Size| -> Result<Loaded, KernelError> {
            let kernel = module.kernel(size.name, size.shared(size.warps))?;
            Ok(Loaded { kernel, warps: size.warps.min(module.most_threads(kernel)? / 32) })
        };
        let [few, many] = SIZES.map(load);
        Ok(Self { format, products: [few?, many?], convert: module.kernel("dequantise", 0)? })
    }
}

fn of_format<'a>(
    kernels: &'a KernelSet,
    format: Format,
    kernel: &'static str,
) -> Result<&'a QuantisedKernels, KernelError> {
    kernels.quantised.iter().find(|family| family.format == format).ok_or_else(|| KernelError::Shape {
        kernel,
        what: format!("weights in {format:?}"),
        why: "it takes formats in blocks; others are multiplied as bf16",
    })
}

/// `output = input * weight^T + bias` for a weight in blocks, with what a layer does before and after it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QuantisedProduct {
    /// `[outputs, columns]` in its format; with a gate `[2 * outputs, columns]`, gates first.
    pub weight: u64,
    /// `[rows, columns]` bf16.
    pub input: u64,
    /// A f32 per row of the weight, or 0 for none.
    pub bias: u64,
    /// `[count, outputs]` bf16, or f32 where `float_output` is 1; `stride` elements from row to row.
    pub output: u64,
    /// `[columns]` f32: the RMS norm of the input, times this, is multiplied; 0 for none.
    pub norm: u64,
    /// `[count]` u32: which rows of the input are multiplied; 0 for the first ones.
    pub rows: u64,
    pub outputs: u32,
    /// A multiple of 32.
    pub columns: u32,
    /// Any number; up to 16 share a reading of the weight.
    pub count: u32,
    pub stride: u32,
    pub float_output: u32,
    /// What [`gate_word`] says: `output = activation(gates) * the others`; 0 for none.
    pub gate: u32,
    /// 1: the product, rounded to bf16, is added to the output, which is bf16.
    pub add: u32,
    /// Of the norm.
    pub epsilon: f32,
}

/// [`QuantisedProduct::gate`] of an activation.
pub fn gate_word(activation: Activation) -> u32 {
    match activation {
        Activation::Silu => 1,
        Activation::Gelu => 2,
    }
}

/// # Safety
/// As this module says.
pub unsafe fn quantised_product(
    launcher: &Launcher,
    kernels: &KernelSet,
    format: Format,
    product: &QuantisedProduct,
) -> Result<(), KernelError> {
    let QuantisedProduct { outputs, columns, count, gate, .. } = *product;
    if !columns.is_multiple_of(BLOCK) {
        let (what, why) = (format!("columns {columns}"), "a block has 32 columns, so it must be a multiple of them");
        return Err(KernelError::Shape { kernel: "quantised_product", what, why });
    }
    if count == 0 || outputs == 0 || columns == 0 {
        return Ok(());
    }
    let which = usize::from(count > 8);
    let Loaded { kernel, warps: most } = of_format(kernels, format, "quantised_product")?.products[which];
    let size = SIZES[which];
    let warps = (columns / BLOCK).div_ceil(size.ahead).min(most);
    let shared = size.shared(warps);
    let tiles = outputs.div_ceil(if gate == 0 { TILE_ROWS } else { TILE_ROWS / 2 });
    let resident = launcher.resident(kernel, warps * 32, shared)? * launcher.multiprocessors;
    let grid = [tiles.min(resident), count.div_ceil(8 * size.tiles)];
    let shape = Shape { grid, threads: warps * 32, shared };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernel, shape, product) }
}

/// A whole matrix to bf16.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dequantise {
    /// `[rows, columns]` in its format.
    pub weight: u64,
    /// `[rows, columns]` bf16.
    pub output: u64,
    pub rows: u32,
    /// A multiple of 8.
    pub columns: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn dequantise(
    launcher: &Launcher,
    kernels: &KernelSet,
    format: Format,
    arguments: &Dequantise,
) -> Result<(), KernelError> {
    KernelError::unless_pieces("dequantise", "columns", arguments.columns)?;
    let pieces = u64::from(arguments.rows) * u64::from(arguments.columns / 8);
    let shape = Shape { grid: [blocks(pieces, CONVERT_THREADS), 1], threads: CONVERT_THREADS, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(of_format(kernels, format, "dequantise")?.convert, shape, arguments) }
}
