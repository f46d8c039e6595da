//! Products with weights of any format, and their conversion.

use super::format::{Format, names};
use super::launch::{Shape, blocks};
use super::module::Module;
use super::product::Product;
use super::{Kernel, KernelError, KernelSet, Launcher};

/// Outputs of a block, a warp each, and rows of activations that share a reading of the weights.
const WARPS: u32 = 4;
const INPUTS: u32 = 8;
const CONVERT_THREADS: u32 = 256;

const ONE: [&str; 11] = names!("quantised_one_");
const SEVERAL: [&str; 11] = names!("quantised_");
const CONVERT: [&str; 11] = names!("dequantise_");

pub(super) struct QuantisedKernels {
    one: Vec<Kernel>,
    several: Vec<Kernel>,
    convert: Vec<Kernel>,
}

impl QuantisedKernels {
    pub fn load(module: &Module) -> Result<Self, KernelError> {
        let all = |names: &[&'static str]| names.iter().map(|name| module.kernel(name, 0)).collect::<Result<_, _>>();
        Ok(Self { one: all(&ONE)?, several: all(&SEVERAL)?, convert: all(&CONVERT)? })
    }
}

/// [`super::product()`] for a weight in any format and any number of rows.
///
/// # Safety
/// As this module says.
pub unsafe fn quantised_product(
    launcher: &Launcher,
    kernels: &KernelSet,
    format: Format,
    product: &Product,
) -> Result<(), KernelError> {
    KernelError::unless_pieces("quantised product", "columns", product.columns)?;
    let family = &kernels.quantised;
    let (kernels, inputs) = if product.count == 1 { (&family.one, 1) } else { (&family.several, INPUTS) };
    let grid = [product.outputs.div_ceil(WARPS), product.count.div_ceil(inputs)];
    let shape = Shape { grid, threads: WARPS * 32, shared: 0 };
    // SAFETY: this function's contract; the argument is the kernel's.
    unsafe { launcher.launch(kernels[format.index()], shape, product) }
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
    unsafe { launcher.launch(kernels.quantised.convert[format.index()], shape, arguments) }
}
