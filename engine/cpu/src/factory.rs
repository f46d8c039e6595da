use std::sync::Arc;
use std::time::Duration;

use engine::backend::BackendError;
use engine::collective::Collective;
use engine::executor::RankFactory;

use crate::{CpuBackend, RankGroup};

/// The algorithm name of collectives between CPU ranks, for a [`engine::collective::CollectivePlan`].
pub const SHARED_MEMORY: &str = "shared_memory";

/// Ranks on the CPU: threads of this process.
pub struct CpuRanks {
    group: Arc<RankGroup>,
}

impl CpuRanks {
    /// `deadline` is how long a rank waits for the others in a collective before the group fails.
    pub fn new(world_size: usize, deadline: Duration) -> Self {
        Self { group: RankGroup::new(world_size, deadline) }
    }
}

impl RankFactory for CpuRanks {
    type Backend = CpuBackend;

    fn world_size(&self) -> usize {
        self.group.world_size()
    }

    fn backend(&self, _rank: usize) -> Result<CpuBackend, BackendError> {
        Ok(CpuBackend::new())
    }

    fn collective(&self, rank: usize, _: &mut CpuBackend) -> Result<Box<dyn Collective<CpuBackend>>, BackendError> {
        Ok(Box::new(self.group.member(rank)))
    }

    fn poison(&self, message: &str) {
        self.group.poison(message);
    }
}
