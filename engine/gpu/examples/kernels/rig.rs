//! The device, its kernels, and memory that notices what is written past its end.

use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, result, sys};
use engine_gpu::device::Gpu;
use engine_gpu::kernels::{KernelError, KernelSet, Launcher};

use crate::compile::{compile, features};
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
    pub share: Share,
}

/// One process's share of the cases, where several divide them: every `of`th group of cases, from `index` on.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub index: usize,
    pub of: usize,
    met: usize,
}

impl Share {
    pub const WHOLE: Self = Self { index: 0, of: 1, met: 0 };

    /// From `2/3`. None if it is another word, or not a share.
    pub fn of(word: &str) -> Option<Self> {
        let (index, of) = word.split_once('/')?;
        let (index, of): (usize, usize) = (index.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&index).then(|| Self { index: index - 1, of, met: 0 })
    }
}

impl Rig {
    /// With attention for these head dimensions, and kernels as [`compile`] makes them.
    pub fn open(programmatic: bool, heads: &[u32]) -> Result<Self, Failure> {
        let compiled = compile(heads, Share::WHOLE)?;
        let gpu = Gpu::open(0)?;
        let kernels = KernelSet::load(&gpu.context, heads, |unit| -> Result<Vec<u8>, Failure> {
            let found = compiled.iter().find(|(other, _)| other == unit).ok_or("a unit that was not compiled")?;
            Ok(found.1.cubin.clone())
        })?;
        let programmatic = programmatic && features().0["pdl"];
        let launcher = Launcher::new(Arc::clone(&gpu.stream), programmatic, gpu.multiprocessors);
        Ok(Self { gpu, launcher, kernels, random: Random(1), small: false, share: Share::WHOLE })
    }

    /// Whether the next group of cases is this process's.
    pub fn mine(&mut self) -> bool {
        let turn = self.share.met % self.share.of;
        self.share.met += 1;
        turn == self.share.index
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

    /// Bytes that are not numbers in any format.
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
