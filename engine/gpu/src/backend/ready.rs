//! Making the kernels of a device ready.

use std::collections::HashMap;
use std::path::PathBuf;
use std::thread;

use engine::backend::BackendError;
use engine::plan::KernelTarget;

use crate::compile::{Cache, CompileError, CompileTarget, Nvrtc, Pack, Provider, Unit, units};
use crate::device::Gpu;
use crate::kernels::{AllReduceKernels, KernelError, KernelSet};

/// Where compiled kernels come from and go to.
#[derive(Clone, Debug, Default)]
pub struct KernelStore {
    /// A pack of `archway kernels build`: with it no compiler is needed.
    pub pack: Option<PathBuf>,
    /// Folder of the cache; none keeps nothing.
    pub cache: Option<PathBuf>,
}

/// Why kernels are not ready.
#[derive(Debug, thiserror::Error)]
enum ReadyError {
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("the record of {0} names no compiler target")]
    NoTarget(String),
}

/// Compiles what no pack and no cache has, and loads everything.
pub(super) fn kernels(
    gpu: &Gpu,
    target: &KernelTarget,
    head_dimensions: &[u32],
    store: &KernelStore,
) -> Result<KernelSet, BackendError> {
    let ready = || -> Result<KernelSet, ReadyError> {
        let provider = provider(target, store)?;
        let units = units(head_dimensions);
        let mut compiled = compile(&provider, &units)?;
        KernelSet::load(&gpu.context, head_dimensions, |unit: &Unit| {
            Ok::<_, ReadyError>(compiled.remove(unit.name()).unwrap_or_default())
        })
    };
    ready().map_err(|error| BackendError::Device { operation: "kernels", message: error.to_string() })
}

/// The same for collectives.
pub(crate) fn collective_kernels(
    gpu: &Gpu,
    target: &KernelTarget,
    store: &KernelStore,
) -> Result<AllReduceKernels, BackendError> {
    let ready = || -> Result<AllReduceKernels, ReadyError> {
        let provider = provider(target, store)?;
        let mut compiled = compile(&provider, &AllReduceKernels::units())?;
        AllReduceKernels::load(&gpu.context, |unit: &Unit| {
            Ok::<_, ReadyError>(compiled.remove(unit.name()).unwrap_or_default())
        })
    };
    ready().map_err(|error| BackendError::Device { operation: "kernels", message: error.to_string() })
}

fn provider(target: &KernelTarget, store: &KernelStore) -> Result<Provider, ReadyError> {
    let name = target.targets.first().ok_or_else(|| ReadyError::NoTarget(target.arch.clone()))?;
    let pack = store.pack.as_deref().map(Pack::read).transpose()?;
    let target = CompileTarget { target: name.clone(), features: target.features.clone() };
    Ok(Provider { target, pack, cache: store.cache.clone().map(Cache::new), compiler: Nvrtc::open() })
}

/// Every unit on a thread of its own: the slowest one decides how long a cold start takes.
fn compile(provider: &Provider, units: &[Unit]) -> Result<HashMap<String, Vec<u8>>, CompileError> {
    thread::scope(|scope| {
        let compiling: Vec<_> = units.iter().map(|unit| scope.spawn(|| provider.get(unit))).collect();
        let mut compiled = HashMap::new();
        for (unit, thread) in units.iter().zip(compiling) {
            let (entry, origin) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            tracing::debug!(unit = unit.name(), ?origin, "kernels");
            compiled.insert(unit.name().to_owned(), entry.cubin);
        }
        Ok(compiled)
    })
}
