//! A thread per rank.

use std::sync::Arc;
use std::thread;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, result};

use super::{MeasureError, MeasurePlan};
use crate::collective::{Buffers, GpuGroup, GpuMember, NcclRank, Together};
use crate::compile::{Cache, Nvrtc, Provider, units};
use crate::device::{Allocation, Gpu, Purpose};
use crate::kernels::{AllReduceKernels, Check, CheckStep, KernelSet, Launcher, check};

/// What one rank measures with.
pub struct Rank {
    pub gpu: Gpu,
    pub member: GpuMember,
    /// Kernels of unfused steps.
    pub kernels: KernelSet,
    pub together: Arc<Together>,
    /// Round counter, wrong count and first wrong index of checks.
    words: Allocation,
}

/// Compiled units, by name.
type Cubins = Vec<(String, Vec<u8>)>;

/// Runs `body` on a thread per rank and gives what each returned, in rank order. Errors: what the first rank that
/// failed says. A rank that fails ends the group, so that the others do not wait for it.
pub fn on_ranks<T: Send>(
    plan: &MeasurePlan,
    body: impl Fn(&Rank) -> Result<T, MeasureError> + Sync,
) -> Result<Vec<T>, MeasureError> {
    let gpus = plan.devices.iter().map(|ordinal| Gpu::open(*ordinal)).collect::<Result<Vec<_>, _>>()?;
    let contexts: Vec<Arc<CudaContext>> = gpus.iter().map(|gpu| Arc::clone(&gpu.context)).collect();
    let cubins = compile(plan)?;
    let group = GpuGroup::new(&contexts, plan.half, Buffers::Apart, plan.patience)?;
    let nccl: Vec<Option<Arc<NcclRank>>> = match NcclRank::all(&contexts) {
        Ok(ranks) => ranks.into_iter().map(Some).collect(),
        Err(error) => {
            tracing::warn!(%error, "no NCCL to compare with");
            gpus.iter().map(|_| None).collect()
        }
    };
    let together = Arc::new(Together::new(gpus.len()));
    let results = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (gpu, nccl)) in gpus.into_iter().zip(nccl).enumerate() {
            let (group, cubins, together, body) = (Arc::clone(&group), &cubins, Arc::clone(&together), &body);
            threads.push(scope.spawn(move || {
                let place = (number, Arc::clone(&group));
                let rank = Rank::new(plan, gpu, place, nccl, cubins, Arc::clone(&together));
                let result = rank.and_then(|rank| body(&rank));
                if result.is_err() {
                    group.abort();
                    together.give_up();
                }
                result
            }));
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T, MeasureError>>| {
            thread.join().unwrap_or_else(|_| Err(MeasureError::Wrong("a rank's thread ended by itself".to_owned())))
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    // What made a rank give up says more than that others had to.
    let cause =
        results.iter().position(|result| matches!(result, Err(error) if !matches!(error, MeasureError::GaveUp(_))));
    let mut results = results;
    match cause {
        Some(rank) => results.swap_remove(rank).map(|_| Vec::new()),
        None => results.into_iter().collect(),
    }
}

fn compile(plan: &MeasurePlan) -> Result<Cubins, MeasureError> {
    let cache = Some(Cache::new(std::env::temp_dir().join("archway-kernels")));
    let provider = Provider { target: plan.target.clone(), pack: None, cache, compiler: Nvrtc::open() };
    // On a thread each: compiling all of them one after the other takes many seconds.
    thread::scope(|scope| {
        let compile = |unit: crate::compile::Unit| {
            let provider = &provider;
            scope.spawn(move || Ok((unit.name().to_owned(), provider.get(&unit)?.0.cubin)))
        };
        let threads: Vec<_> = units(&[]).into_iter().map(compile).collect();
        let ended = || MeasureError::Wrong("a compiling thread ended by itself".to_owned());
        threads.into_iter().map(|thread| thread.join().map_err(|_| ended())?).collect()
    })
}

impl Rank {
    fn new(
        plan: &MeasurePlan,
        gpu: Gpu,
        (rank, group): (usize, Arc<GpuGroup>),
        nccl: Option<Arc<NcclRank>>,
        cubins: &Cubins,
        together: Arc<Together>,
    ) -> Result<Self, MeasureError> {
        gpu.context.bind_to_thread()?;
        let cubin = |name: &str| -> Result<Vec<u8>, MeasureError> {
            let found = cubins.iter().find(|(other, _)| other == name).map(|(_, cubin)| cubin.clone());
            found.ok_or_else(|| MeasureError::Wrong(format!("no compiled unit {name}")))
        };
        let kernels = KernelSet::load(&gpu.context, &[], |unit| cubin(unit.name()))?;
        let sums = AllReduceKernels::load(&gpu.context, |unit| cubin(unit.name()))?;
        let programmatic = plan.programmatic && plan.target.features.get("pdl") == Some(&true);
        let launcher = Launcher::new(Arc::clone(&gpu.stream), programmatic, gpu.multiprocessors);
        let words = Allocation::zeroed(&gpu.stream, &gpu.account, 64, Purpose::Workspace, "measure")?;
        let member = GpuMember { group, rank, launcher, kernels: sums, nccl };
        Ok(Self { gpu, member, kernels, together, words })
    }

    pub fn rank(&self) -> usize {
        self.member.rank
    }

    pub fn ranks(&self) -> usize {
        self.member.group.ranks()
    }

    pub fn allocate(&self, bytes: u64) -> Result<Allocation, MeasureError> {
        let bytes = bytes as usize;
        Ok(Allocation::zeroed(&self.gpu.stream, &self.gpu.account, bytes, Purpose::Workspace, "measure")?)
    }

    /// Waits for this rank's stream. Errors: the group ended, or the device failed.
    pub fn wait(&self, name: impl Fn(u32) -> String) -> Result<(), MeasureError> {
        self.gpu.synchronise("measure")?;
        self.member.group.ended(name).map_or(Ok(()), |why| Err(MeasureError::Wrong(why)))
    }

    pub fn read<T: Pod>(&self, address: u64, count: usize) -> Result<Vec<T>, MeasureError> {
        let mut values = vec![T::zeroed(); count];
        self.gpu.synchronise("measure")?;
        // SAFETY: callers name memory of this context with as many values.
        unsafe { result::memcpy_dtoh_sync(&mut values, address)? };
        Ok(values)
    }

    pub fn write<T: Pod>(&self, address: u64, values: &[T]) -> Result<(), MeasureError> {
        self.gpu.synchronise("measure")?;
        // SAFETY: callers name memory of this context with as many values.
        unsafe { result::memcpy_htod_sync(address, values)? };
        Ok(self.gpu.context.synchronize()?)
    }

    /// A step of a check on `elements` elements at `data`. `salt` names the call.
    pub fn step(&self, step: CheckStep, data: u64, elements: u64, salt: u32) -> Result<(), MeasureError> {
        self.step_as(self.rank(), step, data, elements, salt, 0)
    }

    pub fn delay(&self, most: u32, salt: u32) -> Result<(), MeasureError> {
        self.step_as(self.rank(), CheckStep::Delay, 0, 0, salt, most)
    }

    /// Fills `data` as rank `rank` would: what is the same on every rank is that of one of them.
    pub fn step_as(
        &self,
        rank: usize,
        step: CheckStep,
        data: u64,
        elements: u64,
        salt: u32,
        delay: u32,
    ) -> Result<(), MeasureError> {
        let (round, wrong) = (self.words.pointer(), self.words.pointer() + 8);
        let (rank, ranks) = (rank as u32, self.ranks() as u32);
        let arguments = Check { round, data, wrong, elements, salt, rank, ranks, delay };
        // SAFETY: callers name memory of this context with as many elements.
        unsafe { check(&self.member.launcher, &self.member.kernels, step, &arguments) }.map_err(MeasureError::from)
    }

    /// The round of the checks, and how many elements were wrong since the last time; the first one's index plus one.
    pub fn findings(&self) -> Result<[u32; 3], MeasureError> {
        let words = self.read::<u32>(self.words.pointer(), 4)?;
        // SAFETY: inside the allocation, and nothing runs on the stream.
        unsafe { result::memset_d8_sync(self.words.pointer() + 8, 0, 8)? };
        self.gpu.context.synchronize()?;
        Ok([words[0], words[2], words[3]])
    }
}
