//! All kernels of one device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};

use super::KernelError;
use super::activation::ActivationKernels;
use super::allreduce::AllReduceKernels;
use super::attention::AttentionKernels;
use super::copy::CopyKernels;
use super::embedding::EmbeddingKernels;
use super::logits::LogitsKernels;
use super::module::Module;
use super::norm::NormKernels;
use super::product::ProductKernels;
use super::quantised::QuantisedKernels;
use super::rope::RopeKernels;
use super::sampling::SamplingKernels;
use crate::compile::{Unit, units};

/// Every kernel, loaded into one context.
pub struct KernelSet {
    pub(super) activation: ActivationKernels,
    pub(super) attention: Vec<(u32, AttentionKernels)>,
    pub(super) copy: CopyKernels,
    pub(super) embedding: EmbeddingKernels,
    pub(super) logits: LogitsKernels,
    pub(super) norm: NormKernels,
    pub(super) product: ProductKernels,
    pub(super) quantised: Vec<QuantisedKernels>,
    pub(super) rope: RopeKernels,
    pub(super) sampling: SamplingKernels,
}

impl KernelSet {
    /// The units that [`KernelSet::load`] asks for: all but those of collectives.
    pub fn units(head_dimensions: &[u32]) -> Vec<Unit> {
        let others = AllReduceKernels::units();
        units(head_dimensions).into_iter().filter(|unit| !others.contains(unit)).collect()
    }

    /// Loads the units of [`KernelSet::units`] for these head dimensions. `cubin` gives a unit's compiled form,
    /// from the compiler, the cache or a pack.
    pub fn load<E: From<KernelError>>(
        context: &Arc<CudaContext>,
        head_dimensions: &[u32],
        mut cubin: impl FnMut(&Unit) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let units = Self::units(head_dimensions);
        let mut module = |name: &str| -> Result<Module, E> {
            let unit = units.iter().find(|unit| unit.name() == name).expect("every unit that is loaded is listed");
            Ok(Module::load(context, unit.name(), &cubin(unit)?)?)
        };
        let mut attention = Vec::new();
        for unit in units.iter().filter(|unit| unit.head().is_some()) {
            let head = unit.head().unwrap_or_default();
            attention.push((head, AttentionKernels::load(&module(unit.name())?, head)?));
        }
        let mut quantised = Vec::new();
        for (unit, format) in units.iter().filter_map(|unit| Some((unit, unit.format()?))) {
            quantised.push(QuantisedKernels::load(&module(unit.name())?, format)?);
        }
        let streamed = ProductKernels::STREAMED.iter().map(|unit| module(unit)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            activation: ActivationKernels::load(&module("activation")?)?,
            attention,
            copy: CopyKernels::load(&module("copy")?)?,
            embedding: EmbeddingKernels::load(&module("embedding")?)?,
            logits: LogitsKernels::load(&module("logits")?)?,
            norm: NormKernels::load(&module("norm")?)?,
            product: ProductKernels::load(
                &module("product")?,
                &streamed,
                &module(ProductKernels::SLICED)?,
                shared_limit(context)?,
            )?,
            quantised,
            rope: RopeKernels::load(&module("rope")?)?,
            sampling: SamplingKernels::load(&module("sampling")?)?,
        })
    }
}

/// Bytes of shared memory that a block of this device may have.
fn shared_limit(context: &Arc<CudaContext>) -> Result<u32, KernelError> {
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let limit = context.attribute(attribute);
    let limit = limit.map_err(|error| KernelError::Module { unit: "product".to_owned(), error: error.to_string() })?;
    Ok(limit.unsigned_abs())
}
