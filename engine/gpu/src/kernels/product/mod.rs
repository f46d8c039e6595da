//! Products of few rows with bf16 weights.

mod map;
mod size;
mod sliced;

use std::sync::atomic::{AtomicU32, Ordering};

use engine::model::Activation;

use super::launch::Shape;
use super::module::Module;
use super::{Choice, Kernel, KernelError, KernelSet, Launcher};
use size::{DIRECT, STREAMED, Size};
use sliced::SlicedKernels;

/// Most rows of activations of these kernels; more go to the matrix library.
pub const MOST_PRODUCT_ROWS: u32 = 64;

/// Neighbouring elements of a row whose squares are summed at once: the twin of a constant in `kernels/product/common.cuh`.
pub const SQUARES: u32 = 16;

/// Up to this many rows these kernels are faster than the matrix library (H200, cuBLAS 13.1: `kernels/product/README.md`),
/// whatever the matrix; for some matrices they are up to [`PREFERRED_OF_SOME`].
pub const PREFERRED_PRODUCT_ROWS: u32 = 16;

/// See [`prefers`].
pub const PREFERRED_OF_SOME: u32 = 32;

/// Of a block of the largest kernel that every device must run.
pub(super) fn largest_shared() -> u32 {
    DIRECT.iter().map(|size| size.shared).max().unwrap_or(0)
}

/// Of a block of the largest kernel that is left out where it does not fit.
pub(super) fn largest_optional_shared() -> u32 {
    STREAMED.iter().map(|size| size.shared).max().unwrap_or(0).max(sliced::largest_shared())
}

/// A size that was compiled and fits: plain and gated.
type Loaded = (Size, [Kernel; 2]);

pub(super) struct ProductKernels {
    direct: Vec<Loaded>,
    streamed: Vec<Loaded>,
    sliced: SlicedKernels,
    /// Number of the next launch: launches near each other must draw from different tickets.
    launches: AtomicU32,
}

impl ProductKernels {
    /// Units of the streamed kernels.
    pub const STREAMED: [&str; 3] = ["streamed", "held", "wide"];

    /// Unit of the sliced kernels.
    pub const SLICED: &str = sliced::UNIT;

    /// `streamed` are [`Self::STREAMED`], `sliced` is [`Self::SLICED`]; `shared_limit` is what a block of this device may have.
    pub fn load(direct: &Module, streamed: &[Module], sliced: &Module, shared_limit: u32) -> Result<Self, KernelError> {
        let pair = |size: &Size| -> Result<Loaded, KernelError> {
            Ok((*size, [direct.kernel(size.plain, size.shared)?, direct.kernel(size.gated, size.shared)?]))
        };
        let direct = DIRECT.iter().map(pair).collect::<Result<_, _>>()?;
        let optional = |size: &Size| -> Result<Option<Loaded>, KernelError> {
            if size.shared > shared_limit {
                return Ok(None);
            }
            let unit = Self::STREAMED.iter().position(|unit| *unit == size.unit).expect("every size's unit is listed");
            let kernel = |name| streamed[unit].optional(name, size.shared)?.map(Kernel::beside_streamed).transpose();
            let [plain, gated] = [size.plain, size.gated].map(kernel);
            Ok(plain?.zip(gated?).map(|(plain, gated)| (*size, [plain, gated])))
        };
        let streamed = STREAMED.iter().filter_map(|size| optional(size).transpose()).collect::<Result<_, _>>()?;
        let sliced = SlicedKernels::load(sliced, shared_limit)?;
        Ok(Self { direct, streamed, sliced, launches: AtomicU32::new(0) })
    }

    /// The kernel for a product, if one takes so many rows.
    fn choose(&self, product: &Product, gated: usize, multiprocessors: u32) -> Option<&Loaded> {
        let suits = |(size, _): &&Loaded| size.suits(product, gated == 1, multiprocessors);
        self.streamed.iter().chain(&self.direct).find(suits)
    }
}

/// `output = input * weight^T + bias`. For [`gated_product`] the weight is `[2 * outputs, columns]`, gates first, and
/// `output = activation(gates) * the others`.
///
/// An RMS norm between two products needs no kernel, because `W (h g / root) = (W (h g)) / root`: the first product adds to
/// the residual stream `h` and gives `h g` and sums of squares of `h` (`residual`, `norm`, `squares`), the second one reads
/// `h g` and divides by the root (`input_squares`, `epsilon`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
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
    /// Set at the launch.
    pub launch: u32,
    /// Of the norm of the input.
    pub epsilon: f32,
    /// `[count, outputs]` bf16, or 0: the product is added to it, and the output, bf16 with `stride = outputs`, is the sum
    /// times `norm`. Outputs are then a multiple of [`SQUARES`]; not of [`gated_product`].
    pub residual: u64,
    /// `[outputs]` f32.
    pub norm: u64,
    /// `[count, outputs / SQUARES]` f32, written: sums of squares of neighbours in the residual stream.
    pub squares: u64,
    /// `[.., columns / SQUARES]` f32, or 0: what the product that made the input left as `squares`. The sums are multiplied
    /// by the inverse root of their mean. Columns are then a multiple of [`SQUARES`].
    pub input_squares: u64,
    /// `[count]` u32: the rows of `input` and `input_squares` that are multiplied; 0 for the first ones. Written before the
    /// pass.
    pub input_rows: u64,
    /// Of f32 outputs, where [`chooses`] says so: the largest of each row is chosen. With `best` 0 nothing is.
    pub choice: Choice,
}

impl Product {
    /// Bytes of the weight.
    fn weight_bytes(&self, gated: bool) -> u64 {
        u64::from(self.outputs) * u64::from(self.columns) * 2 * (1 + u64::from(gated))
    }

    /// Errors: a norm in front of or behind it that the kernels cannot take.
    fn check_norms(&self, gated: usize) -> Result<(), KernelError> {
        let plain = gated == 0 && self.float_output == 0 && self.stride == self.outputs;
        if self.residual != 0 && !(plain && self.outputs.is_multiple_of(SQUARES)) {
            let what = format!("{} outputs, {} from row to row", self.outputs, self.stride);
            let why = "sums with the residual stream are plain rows of a multiple of 16 in bf16";
            return Err(KernelError::Shape { kernel: "product", what, why });
        }
        if self.input_squares != 0 && !self.columns.is_multiple_of(SQUARES) {
            let (what, why) = (format!("{} columns", self.columns), "the norm of the input takes a multiple of 16");
            return Err(KernelError::Shape { kernel: "product", what, why });
        }
        Ok(())
    }
}

/// Whether these kernels are faster than the matrix library for so many rows and a matrix of these rows and columns, gated or
/// not. Of more than [`PREFERRED_PRODUCT_ROWS`] they are only where all rows of the input are multiplied, in their order.
pub fn prefers(launcher: &Launcher, kernels: &KernelSet, [outputs, columns]: [u32; 2], rows: u32) -> bool {
    let product = Product { outputs, columns, count: rows, ..Product::default() };
    rows <= PREFERRED_PRODUCT_ROWS || kernels.product.sliced.suits(&product, false, launcher.multiprocessors)
}

/// Whether the kernel for this product can choose from its output as well.
pub fn chooses(launcher: &Launcher, kernels: &KernelSet, product: &Product) -> bool {
    let size = kernels.product.choose(product, 0, launcher.multiprocessors);
    product.float_output == 1 && product.residual == 0 && size.is_some_and(|(size, _)| size.chooses())
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
    product.check_norms(gated)?;
    if product.count == 0 || product.outputs == 0 {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    if unsafe { kernels.product.sliced.launch(launcher, product, gated == 1) }? {
        return Ok(());
    }
    let Some((size, family)) = kernels.product.choose(product, gated, launcher.multiprocessors) else {
        let (what, why) = (format!("{} rows", product.count), "it takes up to 64; more go to the matrix library");
        return Err(KernelError::Shape { kernel: "product", what, why });
    };
    let tiles = size.tiles(product, gated == 1);
    let grid = [tiles.min(launcher.multiprocessors * size.resident), 1];
    let shape = Shape { grid, threads: size.threads, shared: size.shared };
    let product = Product { launch: kernels.product.launches.fetch_add(1, Ordering::Relaxed), ..*product };
    // SAFETY: the caller's contract; the argument is the kernel's.
    unsafe { launcher.launch(family[gated], shape, &product) }
}
