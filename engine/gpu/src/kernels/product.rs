//! Products of few rows with bf16 weights.

use engine::model::Activation;

use super::launch::Shape;
use super::module::Module;
use super::{Kernel, KernelError, KernelSet, Launcher};

/// Most rows of activations of these kernels; more go to the matrix library.
pub const MOST_PRODUCT_ROWS: u32 = 64;

const WARPS: u32 = 8;

/// One size of the kernel.
#[derive(Clone, Copy)]
struct Size {
    plain: &'static str,
    gated: &'static str,
    /// Most rows of activations.
    inputs: u32,
    /// Rows of weights in a tile.
    rows: u32,
    /// Blocks on a multiprocessor.
    resident: u32,
}

const SIZES: [Size; 4] = [
    Size { plain: "product_8", gated: "gated_8", inputs: 8, rows: 16, resident: 2 },
    Size { plain: "product_16", gated: "gated_16", inputs: 16, rows: 16, resident: 2 },
    Size { plain: "product_32", gated: "gated_32", inputs: 32, rows: 32, resident: 1 },
    Size { plain: "product_64", gated: "gated_64", inputs: 64, rows: 32, resident: 1 },
];

impl Size {
    const fn shared(&self) -> u32 {
        WARPS * self.rows * (self.inputs + 1) * size_of::<f32>() as u32
    }
}

/// Of a block of the largest kernel.
pub(super) fn largest_shared() -> u32 {
    SIZES.iter().map(Size::shared).max().unwrap_or(0)
}

pub(super) struct ProductKernels {
    /// Plain and gated, in the order of [`SIZES`].
    sizes: Vec<[Kernel; 2]>,
}

impl ProductKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        let pair = |size: &Size| -> Result<_, KernelError> {
            Ok([module.kernel(size.plain, size.shared())?, module.kernel(size.gated, size.shared())?])
        };
        Ok(Self { sizes: SIZES.iter().map(pair).collect::<Result<_, _>>()? })
    }
}

/// `output = input * weight^T + bias`. For [`gated_product`] the weight is `[2 * outputs, columns]`, gates first, and
/// `output = activation(gates) * the others`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// `[outputs, columns]` bf16.
    pub weight: u64,
    /// `[count, columns]` bf16.
    pub input: u64,
    /// A f32 per row of the weight, or 0 for none.
    pub bias: u64,
    /// `[count, outputs]` bf16, or f32 where `float_output` is 1; `stride` elements from row to row.
    pub output: u64,
    pub outputs: u32,
    /// A multiple of 8.
    pub columns: u32,
    /// 1 to [`MOST_PRODUCT_ROWS`].
    pub count: u32,
    pub stride: u32,
    pub float_output: u32,
    /// Set by [`gated_product`].
    pub activation: u32,
}

/// # Safety
/// As this module says.
pub unsafe fn product(launcher: &Launcher, kernels: &KernelSet, product: &Product) -> Result<(), KernelError> {
    // SAFETY: this function's contract.
    unsafe { launch(launcher, kernels, product, 0) }
}

/// # Safety
/// As this module says.
pub unsafe fn gated_product(
    launcher: &Launcher,
    kernels: &KernelSet,
    activation: Activation,
    product: &Product,
) -> Result<(), KernelError> {
    let activation = match activation {
        Activation::Silu => 0,
        Activation::Gelu => 1,
    };
    // SAFETY: this function's contract.
    unsafe { launch(launcher, kernels, &Product { activation, ..*product }, 1) }
}

unsafe fn launch(launcher: &Launcher, kernels: &KernelSet, product: &Product, gated: usize) -> Result<(), KernelError> {
    KernelError::unless_pieces("product", "columns", product.columns)?;
    if product.count == 0 || product.outputs == 0 {
        return Ok(());
    }
    let Some(index) = SIZES.iter().position(|size| product.count <= size.inputs) else {
        let (what, why) = (format!("{} rows", product.count), "it takes up to 64; more go to the matrix library");
        return Err(KernelError::Shape { kernel: "product", what, why });
    };
    let size = &SIZES[index];
    let outputs = if gated == 1 { size.rows / 2 } else { size.rows };
    let tiles = product.outputs.div_ceil(outputs);
    let grid = [tiles.min(launcher.multiprocessors * size.resident), 1];
    let shape = Shape { grid, threads: WARPS * 32, shared: size.shared() };
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels.product.sizes[index][gated], shape, product) }
}
