//! Products of several rows with columns outermost: `kernels/product/sliced.cuh`.

use cudarc::driver::sys;

use super::map::{BLOCK, Boxes, TensorMap};
use super::{PREFERRED_OF_SOME, PREFERRED_PRODUCT_ROWS, Product};
use crate::kernels::launch::Shape;
use crate::kernels::module::Module;
use crate::kernels::{Kernel, KernelError, Launcher};

/// The compiled source.
pub(in crate::kernels) const UNIT: &str = "sliced";

/// Rows of the weight that are brought at once.
const ROWS: u32 = 16;
/// Columns that are brought at once.
const COLUMNS: u32 = 256;
/// Eight warps multiply, three order and make factors.
const THREADS: u32 = 11 * 32;
/// Groups of warps that have rows of their own.
const GROUPS: u32 = 4;
/// Stages of weights, for each group, and of activations.
const STAGES: u32 = 4;
/// Fewest and most rows of activations.
const LEAST_ROWS: u32 = PREFERRED_PRODUCT_ROWS + 1;
const MOST_ROWS: u32 = PREFERRED_OF_SOME;
/// Bytes of shared memory of a block.
pub(super) const SHARED: u32 = STAGES * (GROUPS * ROWS + MOST_ROWS) * COLUMNS * 2;
/// Most times sixteen rows of a cluster: the sums of more find no room where they are exchanged.
const MOST_UNITS: u32 = 15;
/// Bytes of weights per multiprocessor below which the matrix library is as fast.
const WORTH: u64 = 192 * 1024;

/// One form of the kernel, the twin of those in `kernels/product/sliced.cu`.
#[derive(Clone, Copy)]
struct Form {
    plain: &'static str,
    gated: &'static str,
    /// Blocks that share rows of the weight.
    cluster: u32,
    /// Times sixteen rows of the weight that a group of warps has registers for.
    units: u32,
}

/// The first one that has registers for a matrix's rows takes it.
const FORMS: [Form; 3] = [
    form(["sliced_32_2_8", "sliced_gated_32_2_8"], 2, 2),
    form(["sliced_32_2_15", "sliced_gated_32_2_15"], 2, 4),
    form(["sliced_32_1_15", "sliced_gated_32_1_15"], 1, 4),
];

const fn form(names: [&'static str; 2], cluster: u32, units: u32) -> Form {
    Form { plain: names[0], gated: names[1], cluster, units }
}

impl Form {
    /// Of a cluster.
    fn most_units(&self) -> u32 {
        MOST_UNITS.min(GROUPS * self.units)
    }
}

/// A form that was compiled and fits: plain and gated, and clusters that run at once.
struct Loaded {
    form: Form,
    kernels: [Kernel; 2],
    clusters: u32,
}

pub(super) struct SlicedKernels(Vec<Loaded>);

impl SlicedKernels {
    /// `shared_limit` is what a block of this device may have.
    pub fn load(module: &Module, shared_limit: u32) -> Result<Self, KernelError> {
        let mut loaded = Vec::new();
        for form in FORMS.into_iter().filter(|_| SHARED <= shared_limit) {
            let kernel = |name| module.optional(name, SHARED)?.map(Kernel::beside_streamed).transpose();
            let [plain, gated] = [form.plain, form.gated].map(kernel);
            if let Some((plain, gated)) = plain?.zip(gated?) {
                let clusters = clusters(plain, &form)?.min(clusters(gated, &form)?);
                loaded.push(Loaded { form, kernels: [plain, gated], clusters });
            }
        }
        Ok(Self(loaded))
    }

    /// The form for a product that is worth it.
    fn choose(&self, product: &Product, gated: bool, multiprocessors: u32) -> Option<&Loaded> {
        let bytes = u64::from(product.outputs) * u64::from(product.columns) * 2 * (1 + u64::from(gated));
        let whole = product.columns.is_multiple_of(BLOCK) && product.input_rows == 0 && product.choice.best == 0;
        let rows = (LEAST_ROWS..=MOST_ROWS).contains(&product.count);
        let worth = whole && rows && bytes >= WORTH * u64::from(multiprocessors);
        let units = units(product.outputs, gated);
        self.0.iter().find(|loaded| worth && loaded.fits(units))
    }

    pub fn suits(&self, product: &Product, gated: bool, multiprocessors: u32) -> bool {
        self.choose(product, gated, multiprocessors).is_some()
    }

    /// Launches the product if a form suits; false where none does.
    ///
    /// # Safety
    /// As that of a product.
    pub unsafe fn launch(&self, launcher: &Launcher, product: &Product, gated: bool) -> Result<bool, KernelError> {
        let Some(loaded) = self.choose(product, gated, launcher.multiprocessors) else { return Ok(false) };
        let form = loaded.form;
        let clusters = loaded.clusters.min(units(product.outputs, gated));
        let shape = Shape { grid: [clusters * form.cluster, 1], threads: THREADS, shared: SHARED };
        let arguments = Arguments::new(product, gated)?;
        // SAFETY: the caller's contract; the argument is the kernel's.
        unsafe { launcher.launch(loaded.kernels[usize::from(gated)], shape, &arguments) }?;
        Ok(true)
    }
}

impl Loaded {
    /// Whether so many units are few enough for each cluster.
    fn fits(&self, units: u32) -> bool {
        self.clusters > 0 && units.div_ceil(self.clusters) <= self.form.most_units()
    }
}

/// Times sixteen rows of the weight.
fn units(outputs: u32, gated: bool) -> u32 {
    outputs.div_ceil(if gated { ROWS / 2 } else { ROWS })
}

/// The twin of `SlicedArguments`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Arguments {
    product: Product,
    weight: TensorMap,
    input: TensorMap,
}

impl Arguments {
    fn new(product: &Product, gated: bool) -> Result<Self, KernelError> {
        let halves = 1 + u32::from(gated);
        let weight = Boxes {
            address: product.weight,
            matrices: halves,
            rows: product.outputs,
            columns: product.columns,
            box_matrices: halves,
            box_rows: ROWS / halves,
            box_columns: COLUMNS,
        };
        let (rows, box_rows) = (product.count, MOST_ROWS);
        let input = Boxes { address: product.input, matrices: 1, rows, box_matrices: 1, box_rows, ..weight };
        Ok(Self { product: *product, weight: TensorMap::new(&weight)?, input: TensorMap::new(&input)? })
    }
}

/// Clusters of a form that the device runs at once.
fn clusters(kernel: Kernel, form: &Form) -> Result<u32, KernelError> {
    // SAFETY: the attribute is plain data, for which zeros are a value.
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = form.cluster;
    attribute.value.clusterDim.y = 1;
    attribute.value.clusterDim.z = 1;
    let config = sys::CUlaunchConfig {
        gridDimX: form.cluster,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: THREADS,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: SHARED,
        hStream: std::ptr::null_mut(),
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    let mut clusters = 0;
    // SAFETY: the configuration and its attribute live until the call returns; the function's module is never unloaded.
    let result = unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, kernel.function, &raw const config) };
    let missing = |error: cudarc::driver::DriverError| KernelError::Missing {
        unit: UNIT.to_owned(),
        kernel: kernel.name.to_owned(),
        error: error.to_string(),
    };
    result.result().map_err(missing)?;
    Ok(clusters.unsigned_abs())
}
