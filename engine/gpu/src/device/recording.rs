//! Passes recorded as CUDA graphs, by key.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use engine::backend::{BackendError, PassKey};

use super::error::backend_error;

/// What steps a recorded pass may be replayed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All that the key says.
    Any,
    /// Those with short contexts.
    Near,
}

/// Recorded passes. They are recorded before the first step, because recording allocates; afterwards they are replayed.
#[derive(Default)]
pub struct Recordings {
    graphs: HashMap<(PassKey, Reach), CudaGraph>,
    /// Numbers of rows for which some pass is recorded.
    sizes: BTreeSet<usize>,
    closed: bool,
    begun: Option<Instant>,
    spent: Duration,
}

impl Recordings {
    /// Leaves the recordings to the end of the process: what they hold of a library is gone already.
    pub fn forget(&mut self) {
        self.graphs.drain().for_each(|(_, graph)| std::mem::forget(graph));
    }

    /// How many passes are recorded, each way of it.
    pub fn count(&self) -> usize {
        self.graphs.len()
    }

    /// The recorded pass of the fewest rows, no fewer than the key's, which does the same for each of them; none if there is
    /// none.
    pub fn padded(&self, key: PassKey) -> Option<PassKey> {
        least(key, &self.sizes, |key| self.graphs.contains_key(&(key, Reach::Any)))
    }

    /// Whether passes may still be recorded.
    pub fn is_open(&self) -> bool {
        !self.closed
    }

    /// The first step begins.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Replays the pass if it was recorded; false otherwise.
    pub fn replay(&self, key: PassKey, reach: Reach) -> Result<bool, BackendError> {
        let graph = self.graphs.get(&(key, reach)).or_else(|| self.graphs.get(&(key, Reach::Any)));
        let Some(graph) = graph else { return Ok(false) };
        graph.launch().map_err(|error| backend_error("replay", error))?;
        Ok(true)
    }

    /// Time that recording took.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Begins to record what is launched on the stream. In thread-local mode: other threads may allocate meanwhile.
    pub fn begin(&mut self, stream: &CudaStream) -> Result<(), BackendError> {
        self.begun = Some(Instant::now());
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(|error| backend_error("record", error))
    }

    /// Keeps what was recorded since [`Recordings::begin`] under `key`.
    pub fn keep(&mut self, stream: &Arc<CudaStream>, key: PassKey, reach: Reach) -> Result<(), BackendError> {
        let failed = |error| backend_error("record", error);
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).map_err(failed)?;
        let message = "nothing was launched while the pass was recorded".to_owned();
        let graph = graph.ok_or(BackendError::Device { operation: "record", message })?;
        graph.upload().map_err(failed)?;
        self.graphs.insert((key, reach), graph);
        self.sizes.insert(key.rows);
        self.spent += self.begun.take().map_or(Duration::ZERO, |begun| begun.elapsed());
        Ok(())
    }

    /// Throws away what was recorded since [`Recordings::begin`]: the pass failed.
    pub fn abandon(stream: &Arc<CudaStream>) {
        // A stream must leave capture mode whatever happened; that the recording is broken is known already.
        let _ = stream.end_capture(CUgraphInstantiate_flags(0));
    }
}

/// The pass of the fewest rows among `sizes` that there is, no fewer than the key's.
fn least(key: PassKey, sizes: &BTreeSet<usize>, is_there: impl Fn(PassKey) -> bool) -> Option<PassKey> {
    let of = |rows: &usize| PassKey { rows: *rows, logit_rows: key.logit_rows / key.rows.max(1) * rows, ..key };
    sizes.range(key.rows..).map(of).find(|key| is_there(*key))
}

#[cfg(test)]
mod tests {
    use engine::types::Phase;

    use super::*;

    #[test]
    fn a_pass_is_padded_to_the_least_one_of_its_kind() {
        let key = |phase, rows, logit_rows| PassKey { name: PassKey::TARGET, phase, rows, logit_rows };
        let decodes: Vec<PassKey> = [1, 2, 4, 6].map(|rows| key(Phase::Decode, rows, rows)).to_vec();
        let drafts: Vec<PassKey> = [1, 2, 4, 8].map(|rows| key(Phase::Draft, rows, 3 * rows)).to_vec();
        let sizes = decodes.iter().chain(&drafts).map(|key| key.rows).collect();
        let least = |wanted| least(wanted, &sizes, |key| decodes.contains(&key) || drafts.contains(&key));
        assert_eq!(least(key(Phase::Decode, 5, 5)), Some(decodes[3]), "a size that is no bucket");
        assert_eq!(least(key(Phase::Draft, 5, 15)), Some(drafts[3]), "six rows are recorded, but not of this kind");
        assert_eq!(least(key(Phase::Draft, 3, 9)), Some(drafts[2]));
        assert_eq!(least(key(Phase::Decode, 7, 7)), None);
        assert_eq!(least(key(Phase::Draft, 2, 2)), None, "another number of rounds");
    }
}
