//! The device, its kernels, and memory that notices what is written past its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, result, sys};
use engine_gpu::compile::{Cache, CompileTarget, Nvrtc, Provider, units};
use engine_gpu::device::Gpu;
use engine_gpu::kernels::{KernelError, KernelSet, Launcher};

use crate::random::Random;

pub type Failure = Box<dyn std::error::Error>;

/// Bytes after every buffer that must stay as they were.
const GUARD: usize = 256;
const POISON: u8 = 0xff;

pub struct Rig {
    pub gpu: Gpu,
    pub launcher: Launcher,
    pub kernels: KernelSet,
    pub random: Random,
    /// Large shapes are left out.
    pub small: bool,
}

impl Rig {
    /// With attention for these head dimensions. Compiles for `ARCHWAY_TARGET` (`sm_90a`) with the features `ARCHWAY_FEATURES` (`pdl,tma,clusters`).
    pub fn open(programmatic: bool, heads: &[u32]) -> Result<Self, Failure> {
        let variable = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
        let named = variable("ARCHWAY_FEATURES", "pdl,tma,clusters");
        let mut features = BTreeMap::from(["pdl", "tma", "clusters"].map(|name| (name.to_owned(), false)));
        features.extend(named.split(',').filter(|name| !name.is_empty()).map(|name| (name.to_owned(), true)));
        let programmatic = programmatic && features["pdl"];
        let target = CompileTarget { target: variable("ARCHWAY_TARGET", "sm_90a"), features, probed: Vec::new() };
        let cache = Some(Cache::new(std::env::temp_dir().join("archway-kernels")));
        let provider = Provider { target, pack: None, cache, compiler: Nvrtc::open() };
        let gpu = Gpu::open(0)?;
        let start = std::time::Instant::now();
        let units = units(heads);
        let compiled = provider.get_all(&units)?;
        println!("kernels compiled after {:.2} s", start.elapsed().as_secs_f64());
        let kernels = KernelSet::load(&gpu.context, heads, |unit| -> Result<Vec<u8>, Failure> {
            let at = units.iter().position(|other| other == unit).ok_or("a unit that was not compiled")?;
            Ok(compiled[at].0.cubin.clone())
        })?;
        println!("kernels ready after {:.2} s", start.elapsed().as_secs_f64());
        let launcher = Launcher::new(Arc::clone(&gpu.stream), programmatic, gpu.multiprocessors);
        Ok(Self { gpu, launcher, kernels, random: Random(1), small: false })
    }

    pub fn random_bf16(&mut self, count: usize) -> Result<Memory, Failure> {
        let values = self.random.bf16(count);
        self.upload(&values)
    }

    pub fn random_f32(&mut self, count: usize) -> Result<Memory, Failure> {
        let values = self.random.values(count);
        self.upload(&values)
    }

    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Memory, Failure> {
        let memory = self.poisoned(size_of_val(values))?;
        if !values.is_empty() {
            // SAFETY: the allocation is as large as the values.
            unsafe { result::memcpy_htod_sync(memory.address, values)? };
        }
        self.gpu.context.synchronize()?;
        Ok(memory)
    }

    /// Bytes that are no numbers in any format.
    pub fn poisoned(&self, bytes: usize) -> Result<Memory, Failure> {
        self.filled(bytes, POISON)
    }

    pub fn filled(&self, bytes: usize, value: u8) -> Result<Memory, Failure> {
        // SAFETY: the context is current; the memory belongs to the new value.
        let address = unsafe { result::malloc_sync(bytes + GUARD)? };
        let memory = Memory { address, bytes, context: Arc::clone(&self.gpu.context) };
        // SAFETY: inside the allocation.
        unsafe {
            result::memset_d8_sync(address, value, bytes)?;
            result::memset_d8_sync(address + bytes as u64, POISON, GUARD)?;
        }
        self.gpu.context.synchronize()?;
        Ok(memory)
    }
}

/// Device memory with a guard behind it.
pub struct Memory {
    pub address: sys::CUdeviceptr,
    bytes: usize,
    context: Arc<CudaContext>,
}

impl Memory {
    /// Waits for the device, then reads everything. Errors: something wrote behind the end.
    pub fn read<T: Pod>(&self) -> Result<Vec<T>, Failure> {
        self.context.synchronize()?;
        let mut bytes = vec![0u8; self.bytes + GUARD];
        // SAFETY: as large as the allocation.
        unsafe { result::memcpy_dtoh_sync(&mut bytes, self.address)? };
        if bytes[self.bytes..].iter().any(|byte| *byte != POISON) {
            return Err(format!("something wrote behind the end of {} bytes", self.bytes).into());
        }
        bytes.truncate(self.bytes);
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by the rig and freed once; a failure at the end of a test program has no remedy.
        let _ = self.context.synchronize().is_ok() && unsafe { result::free_sync(self.address) }.is_ok();
    }
}

/// Launches within a comparison: errors name the kernel already.
pub fn launched(result: Result<(), KernelError>) -> Result<(), Failure> {
    Ok(result?)
}
