//! What a rank among several does beside its own work.

use std::sync::Arc;

use engine::backend::BackendError;

use super::CudaBackend;
use crate::collective::{Part, SharedGroup};
use crate::device::Gpu;
use crate::kernels::{self, Launcher};

impl CudaBackend {
    /// From now on this rank waits for others, and hears when they are gone. What it launches for them needs kernels.
    pub(crate) fn join(&mut self, rank: usize, group: Arc<SharedGroup>) -> Result<(), BackendError> {
        self.group = Some((rank, group));
        self.kernels.ready()
    }

    /// Tells the group that a recorded pass is about to be replayed.
    pub(super) fn count_replay(&self) {
        if let Some((rank, group)) = &self.group {
            group.count(*rank, None);
        }
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Waits for what was launched. Errors: the device failed, or another rank did.
    pub(super) fn settle(&self, operation: &'static str) -> Result<(), BackendError> {
        match &self.group {
            Some((_, group)) => group.wait(&self.gpu, operation),
            None => self.gpu.synchronise(operation),
        }
    }

    /// Waits on the host until every rank has come.
    pub(super) fn meet(&self) -> Result<(), BackendError> {
        let failed = |message| BackendError::Device { operation: "meet", message };
        self.group.as_ref().map_or(Ok(()), |(_, group)| group.meet().map_err(failed))
    }

    /// Puts a copy of rows into columns of wider rows into the stream.
    pub(crate) fn copy_part(&self, part: &Part) -> Result<(), BackendError> {
        let unit = |bytes: usize| super::launch::word(bytes / size_of::<half::bf16>());
        let copy = kernels::CopyColumns {
            source: part.source,
            target: part.target,
            width: unit(part.width),
            target_width: unit(part.total),
            offset: unit(part.offset),
            rows: super::launch::word(part.rows),
        };
        // SAFETY: the caller names memory of so many rows.
        Ok(unsafe { kernels::copy_columns(&self.launcher, &self.kernels, &copy) }?)
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        if self.group.as_ref().is_some_and(|(_, group)| group.aborted_nccl()) {
            self.recordings.forget();
        }
    }
}
