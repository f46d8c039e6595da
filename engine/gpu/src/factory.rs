use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::backend::BackendError;
use engine::collective::Collective;
use engine::executor::RankFactory;
use engine::plan::KernelTarget;

use crate::backend::{CudaBackend, KernelStore};
use crate::collective::{CollectiveOptions, CudaRank, SharedGroup};
use crate::device::MemoryReport;

/// Which GPUs, and what their kernels are compiled for.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// One for each rank, as CUDA counts.
    pub ordinals: Vec<usize>,
    pub target: KernelTarget,
    /// Head dimensions of the models: each has attention kernels of its own.
    pub head_dimensions: Vec<u32>,
    pub store: KernelStore,
    /// What the plan says of collectives; none for a single rank.
    pub collectives: Option<CollectiveOptions>,
}

/// Ranks on GPUs, a thread each.
pub struct CudaRanks {
    options: CudaOptions,
    memory: MemoryBoard,
    group: Option<Arc<SharedGroup>>,
}

/// Where each rank notes what its device's memory is used for, once it is ready.
pub type MemoryBoard = Arc<Mutex<Vec<Option<MemoryReport>>>>;

impl CudaRanks {
    pub fn new(options: CudaOptions) -> Self {
        let memory = Arc::new(Mutex::new(vec![None; options.ordinals.len()]));
        let group =
            |collectives: &CollectiveOptions| Arc::new(SharedGroup::new(options.ordinals.clone(), collectives.clone()));
        let group = options.collectives.as_ref().map(group);
        Self { options, memory, group }
    }

    /// What the ranks note; to be kept when the ranks are given to an executor.
    pub fn memory(&self) -> MemoryBoard {
        Arc::clone(&self.memory)
    }

    /// The ranks' group, which knows what failed in its self-test; to be kept likewise. None for a single rank.
    pub fn group(&self) -> Option<Arc<SharedGroup>> {
        self.group.clone()
    }
}

impl RankFactory for CudaRanks {
    type Backend = CudaBackend;

    /// As long as a step of a large model, so that nobody sleeps while requests are served, and short enough that an
    /// idle engine does.
    const SPIN: Duration = Duration::from_millis(20);

    fn world_size(&self) -> usize {
        self.options.ordinals.len()
    }

    /// Several ranks read what the first one chose on the host.
    fn runs_alone(&self) -> bool {
        self.world_size() == 1
    }

    fn backend(&self, rank: usize) -> Result<CudaBackend, BackendError> {
        let CudaOptions { ordinals, target, head_dimensions, store, .. } = &self.options;
        let board = Arc::clone(&self.memory);
        let note = move |report: MemoryReport| {
            let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
            board[rank] = Some(report);
        };
        CudaBackend::open(ordinals[rank], target, head_dimensions, store, Box::new(note))
    }

    /// Comes up together with the other ranks, and tries what the plan chose.
    fn collective(
        &self,
        rank: usize,
        backend: &mut CudaBackend,
    ) -> Result<Box<dyn Collective<CudaBackend>>, BackendError> {
        let message = "several ranks, but no plan of how they sum; set CudaOptions::collectives".to_owned();
        let missing = BackendError::Device { operation: "collective", message };
        let group = self.group.as_ref().ok_or(missing)?;
        let CudaOptions { target, store, .. } = &self.options;
        let kernels = crate::backend::collective_kernels(backend.gpu(), target, store)?;
        Ok(Box::new(CudaRank::join(rank, group, kernels, backend)?))
    }

    fn poison(&self, message: &str) {
        if let Some(group) = &self.group {
            group.poison(message);
        }
    }
}
