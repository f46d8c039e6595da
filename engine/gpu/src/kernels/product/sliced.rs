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
/// Bytes of weights per multiprocessor below which the matrix library is as fast.
const WORTH: u64 = 192 * 1024;

/// One form of the kernel, the twin of those in `kernels/product/sliced.cu`.
#[derive(Clone, Copy)]
struct Form {
    plain: &'static str,
    gated: Option<&'static str>,
    /// Fewest and most rows of activations.
    rows: [u32; 2],
    /// Blocks that share rows of the weight.
    cluster: u32,
    /// Of a cluster, the fewest times sixteen rows that it is worth, and the most that registers are for.
    units: [u32; 2],
    /// Stages of weights, for each group of warps, and of activations.
    stages: [u32; 2],
}

/// The first one that takes a product is the fastest.
const FORMS: [Form; 4] = [
    Form { gated: None, rows: [9, 16], units: [3, 8], stages: [5, 4], ..form(["sliced_16_2_8", ""], 2, 8) },
    form(["sliced_32_2_8", "sliced_gated_32_2_8"], 2, 8),
    form(["sliced_32_2_15", "sliced_gated_32_2_15"], 2, 15),
    form(["sliced_32_1_15", "sliced_gated_32_1_15"], 1, 15),
];

const fn form(names: [&'static str; 2], cluster: u32, units: u32) -> Form {
    let rows = [PREFERRED_PRODUCT_ROWS + 1, PREFERRED_OF_SOME];
    Form { plain: names[0], gated: Some(names[1]), rows, cluster, units: [1, units], stages: [4, 4] }
}

impl Form {
    /// Bytes of shared memory of a block.
    const fn shared(&self) -> u32 {
        (GROUPS * self.stages[0] * ROWS + self.stages[1] * self.rows[1]) * COLUMNS * 2
    }

    /// Whether it takes a product that is worth it, where so many clusters run at once.
    fn takes(&self, product: &Product, gated: bool, clusters: u32, multiprocessors: u32) -> bool {
        let bytes = product.weight_bytes(gated);
        let whole = product.columns.is_multiple_of(BLOCK) && product.input_rows == 0 && product.choice.best == 0;
        let units = units(product.outputs, gated);
        whole
            && bytes >= WORTH * u64::from(multiprocessors)
            && (!gated || self.gated.is_some())
            && (self.rows[0]..=self.rows[1]).contains(&product.count)
            && units >= self.units[0] * clusters
            && clusters > 0
            && units.div_ceil(clusters) <= self.units[1]
    }
}

/// Bytes of shared memory of a block of the largest form.
pub(super) fn largest_shared() -> u32 {
    FORMS.iter().map(Form::shared).max().unwrap_or(0)
}

/// A form that was compiled and fits: plain and gated, and clusters that run at once.
struct Loaded {
    form: Form,
    plain: Kernel,
    gated: Option<Kernel>,
    clusters: u32,
}

pub(super) struct SlicedKernels(Vec<Loaded>);

impl SlicedKernels {
    /// `shared_limit` is what a block of this device may have.
    pub fn load(module: &Module, shared_limit: u32) -> Result<Self, KernelError> {
        let mut loaded = Vec::new();
        for form in FORMS.into_iter().filter(|form| form.shared() <= shared_limit) {
            let kernel = |name| module.optional(name, form.shared())?.map(Kernel::beside_streamed).transpose();
            let gated = form.gated.map(kernel).transpose()?.flatten();
            if let Some(plain) = kernel(form.plain)? {
                let of_gated = gated.map(|gated| clusters(gated, &form)).transpose()?;
                let clusters = of_gated.unwrap_or(u32::MAX).min(clusters(plain, &form)?);
                loaded.push(Loaded { form, plain, gated, clusters });
            }
        }
        Ok(Self(loaded))
    }

    /// The form for a product that is worth it.
    fn choose(&self, product: &Product, gated: bool, multiprocessors: u32) -> Option<&Loaded> {
        self.0.iter().find(|loaded| loaded.form.takes(product, gated, loaded.clusters, multiprocessors))
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
        let (form, clusters) = (loaded.form, loaded.clusters.min(units(product.outputs, gated)));
        let shape = Shape { grid: [clusters * form.cluster, 1], threads: THREADS, shared: form.shared() };
        let kernel = loaded.gated.filter(|_| gated).unwrap_or(loaded.plain);
        let arguments = Arguments::new(product, gated, form.rows[1])?;
        // SAFETY: the caller's contract; the argument is the kernel's.
        unsafe { launcher.launch(kernel, shape, &arguments) }?;
        Ok(true)
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
    fn new(product: &Product, gated: bool, most_rows: u32) -> Result<Self, KernelError> {
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
        let (rows, box_rows) = (product.count, most_rows);
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
        sharedMemBytes: form.shared(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device of 132 multiprocessors takes for `[outputs, columns]` and so many rows.
    fn chosen([outputs, columns]: [u32; 2], count: u32, gated: bool) -> Option<&'static str> {
        let product = Product { outputs, columns, count, ..Product::default() };
        let form = FORMS.iter().find(|form| form.takes(&product, gated, 132 / form.cluster, 132))?;
        if gated { form.gated } else { Some(form.plain) }
    }

    #[test]
    fn each_product_has_the_form_that_was_measured_fastest() {
        for (shape, count, gated, name) in [
            ([6144, 4096], 16, false, Some("sliced_16_2_8")),
            ([4096, 4096], 9, false, Some("sliced_16_2_8")),
            ([4096, 14336], 16, false, Some("sliced_16_2_8")),
            ([14336, 4096], 16, true, None),
            ([4096, 4096], 8, false, None),
            ([2048, 8192], 16, false, None),
            ([6144, 4096], 17, false, Some("sliced_32_2_8")),
            ([4096, 14336], 32, false, Some("sliced_32_2_8")),
            ([14336, 4096], 32, true, Some("sliced_gated_32_1_15")),
            ([28672, 4096], 32, false, Some("sliced_32_1_15")),
            ([10240, 8192], 20, false, Some("sliced_32_2_15")),
            ([128_256, 4096], 32, false, None),
            ([4096, 4128], 32, false, None),
            ([3072, 2048], 32, false, None),
            ([4096, 4096], 33, false, None),
        ] {
            assert_eq!(chosen(shape, count, gated), name, "{shape:?}, {count} rows");
        }
    }
}
