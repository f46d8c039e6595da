use std::sync::Arc;
use std::time::Duration;

use engine::backend::BackendError;
use engine::collective::Collective;
use engine::executor::RankFactory;

use crate::kernels::{CacheElement, Compute, Pool, Precision};
use crate::{CpuBackend, Delay, RankGroup};

/// The algorithm name of collectives between CPU ranks, for a [`engine::collective::CollectivePlan`].
pub const SHARED_MEMORY: &str = "shared_memory";

/// The operation of an error where the system gives a rank no threads.
pub const THREADS: &str = "threads";

/// How ranks on the CPU compute.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    pub world_size: usize,
    /// Threads of each rank; none shares this machine's cores equally among the ranks.
    pub threads: Option<usize>,
    pub precision: Precision,
    /// How long a rank waits for the others in a collective before the group fails.
    pub deadline: Duration,
}

/// Ranks on the CPU: threads of this process.
pub struct CpuRanks {
    options: CpuOptions,
    cache: CacheElement,
    /// None where ranks are not handed steps ahead.
    delay: Option<Delay>,
    group: Arc<RankGroup>,
}

impl CpuRanks {
    pub fn new(options: CpuOptions) -> Self {
        let group = RankGroup::new(options.world_size, options.deadline);
        Self { group, options, cache: options.precision.cache(), delay: None }
    }

    /// Keeps keys and values in another type than the precision's own: f32 for exact, f16 for fast.
    pub fn with_cache(self, cache: CacheElement) -> Self {
        Self { cache, ..self }
    }

    /// As ranks on devices that work by themselves.
    pub fn with_delay(self, delay: Delay) -> Self {
        Self { delay: Some(delay), ..self }
    }

    /// How keys and values are kept, for memory planning.
    pub fn cache(&self) -> CacheElement {
        self.cache
    }
}

impl RankFactory for CpuRanks {
    type Backend = CpuBackend;

    fn world_size(&self) -> usize {
        self.group.world_size()
    }

    /// The processor works for the next step as it does for this one: nothing is gained by handing it over early.
    fn runs_alone(&self) -> bool {
        self.delay.is_some()
    }

    fn backend(&self, _rank: usize) -> Result<CpuBackend, BackendError> {
        let CpuOptions { world_size, threads, precision, .. } = self.options;
        let pool = threads.map_or_else(|| Pool::share(world_size), Pool::new);
        let device = |error: std::io::Error| BackendError::Device { operation: THREADS, message: error.to_string() };
        let compute = Compute::new(pool.map_err(device)?, precision);
        Ok(CpuBackend::new(compute, self.cache).delayed(self.delay.clone().unwrap_or_default()))
    }

    fn collective(&self, rank: usize, _: &mut CpuBackend) -> Result<Box<dyn Collective<CpuBackend>>, BackendError> {
        Ok(Box::new(self.group.member(rank)))
    }

    fn poison(&self, message: &str) {
        self.group.poison(message);
    }
}
