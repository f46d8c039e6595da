//! Making the kernels of a device ready.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use engine::backend::BackendError;
use engine::plan::KernelTarget;

use crate::compile::{Cache, CompileError, CompileTarget, Nvrtc, Pack, Provider, Unit};
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

/// Kernels on their way: they are compiled, or found, while weights load.
pub(super) struct Kernels {
    thread: Option<JoinHandle<Result<Cubins, CompileError>>>,
    loaded: Option<KernelSet>,
    gpu: Gpu,
    head_dimensions: Vec<u32>,
}

/// Compiled units by name.
type Cubins = HashMap<String, Vec<u8>>;

impl Kernels {
    /// Begins to compile what no pack and no cache has. Errors: no target, a pack that is damaged.
    pub fn begin(
        gpu: &Gpu,
        target: &KernelTarget,
        head_dimensions: &[u32],
        store: &KernelStore,
    ) -> Result<Self, BackendError> {
        let (provider, units) = (provider(target, store).map_err(failed)?, KernelSet::units(head_dimensions));
        let compile = move || compile(&provider, &units);
        let thread = thread::Builder::new().name("kernels".to_owned()).spawn(compile);
        let thread =
            thread.map_err(|error| BackendError::Device { operation: "kernels", message: error.to_string() })?;
        Ok(Self { thread: Some(thread), loaded: None, gpu: gpu.clone(), head_dimensions: head_dimensions.to_vec() })
    }

    /// Waits until they are compiled, and loads them. To be done before the first launch.
    pub fn ready(&mut self) -> Result<(), BackendError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let compiled = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut compiled = compiled.map_err(|error| failed(error.into()))?;
        let cubin = |unit: &Unit| Ok::<_, ReadyError>(compiled.remove(unit.name()).unwrap_or_default());
        let loaded = KernelSet::load(&self.gpu.context, &self.head_dimensions, cubin).map_err(failed)?;
        self.loaded = Some(loaded);
        Ok(())
    }

    /// Loads them if they are compiled: so a kernel that does not compile ends the start before the weights are there.
    pub fn ready_if_compiled(&mut self) -> Result<(), BackendError> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) { self.ready() } else { Ok(()) }
    }
}

impl Deref for Kernels {
    type Target = KernelSet;

    fn deref(&self) -> &KernelSet {
        self.loaded.as_ref().expect("kernels are ready before a group is joined or a step is allocated")
    }
}

fn failed(error: ReadyError) -> BackendError {
    BackendError::Device { operation: "kernels", message: error.to_string() }
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
    let target =
        CompileTarget { target: name.clone(), features: target.features.clone(), probed: target.probed.clone() };
    Ok(Provider { target, pack, cache: store.cache.clone().map(Cache::new), compiler: Nvrtc::open() })
}

/// Every unit on a thread of its own: the slowest one decides how long a cold start takes.
fn compile(provider: &Provider, units: &[Unit]) -> Result<Cubins, CompileError> {
    let get = |unit: &Unit| {
        let begun = Instant::now();
        provider.get(unit).map(|(compiled, origin)| (compiled, origin, begun.elapsed()))
    };
    thread::scope(|scope| {
        let compiling: Vec<_> = units.iter().map(|unit| scope.spawn(move || get(unit))).collect();
        let mut cubins = HashMap::new();
        for (unit, thread) in units.iter().zip(compiling) {
            let found = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (compiled, origin, took) = found?;
            tracing::debug!(unit = unit.name(), ?origin, seconds = took.as_secs_f64(), "kernels");
            cubins.insert(unit.name().to_owned(), compiled.cubin);
        }
        Ok(cubins)
    })
}
