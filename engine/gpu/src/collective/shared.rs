//! What the ranks of one engine share. The first rank that comes makes it for all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use engine::backend::BackendError;
use engine::collective::CollectivePlan;
use engine::types::Patience;

use super::calls;
use super::group::{Buffers, GpuGroup};
use super::member::Algorithm;
use super::nccl::NcclRank;
use super::self_test::SelfTestFailure;
use super::together::Together;
use crate::device::Gpu;

/// How much longer than ranks wait for each other on the devices the host waits for a device: NCCL's kernels wait forever.
const GRACE: Duration = Duration::from_secs(1);
/// How long the host waits for NCCL to abort.
const FAREWELL: Duration = Duration::from_millis(500);

/// Stands for a call in [`SharedGroup::count`]: a recorded pass, with all of its calls.
const REPLAYED: u64 = 0x8000;

/// What a plan wants of collectives between GPUs.
#[derive(Clone, Debug)]
pub struct CollectiveOptions {
    /// What runs where; all of it is tested before the first step.
    pub plan: Arc<CollectivePlan>,
    /// Bytes of half a window, [`engine::plan::Plan::half_window`]; 0 where ranks do not write to each other.
    pub half_window: u64,
    /// Columns of activations, and of logits over all ranks: what is tested, and sizes NCCL's gathers.
    pub hidden: usize,
    pub vocabulary: usize,
    /// How long a rank waits for another one before all of them end.
    pub patience: Duration,
}

impl CollectiveOptions {
    /// How long ranks wait for each other unless somebody says otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(5);
}

/// The group of one engine's ranks.
pub struct SharedGroup {
    ordinals: Vec<usize>,
    pub(super) options: CollectiveOptions,
    made: Mutex<Option<Made>>,
    together: Together,
    /// The first word on why the group ended.
    ended: Mutex<Option<String>>,
    failed: Mutex<Option<SelfTestFailure>>,
    aborted: AtomicBool,
    /// How many calls each rank has launched, times 65536, and the last one's number.
    progress: Vec<AtomicU64>,
}

/// What exists once a rank has come.
#[derive(Clone)]
struct Made {
    group: Arc<GpuGroup>,
    nccl: Vec<Option<Arc<NcclRank>>>,
}

impl SharedGroup {
    /// Ranks on these GPUs, as CUDA counts.
    pub fn new(ordinals: Vec<usize>, options: CollectiveOptions) -> Self {
        let together = Together::new(ordinals.len());
        let (made, ended, failed, aborted) = Default::default();
        let progress = ordinals.iter().map(|_| AtomicU64::new(0)).collect();
        Self { ordinals, options, made, together, ended, failed, aborted, progress }
    }

    /// Windows and rank `rank`'s NCCL communicator, where the plan has a use for it. Errors: no peer access, no memory,
    /// no NCCL.
    pub(super) fn make(&self, rank: usize) -> Result<(Arc<GpuGroup>, Option<Arc<NcclRank>>), String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Made { group, nccl } = match &*made {
            Some(made) => made.clone(),
            None => made.insert(self.make_all()?).clone(),
        };
        Ok((group, nccl[rank].clone()))
    }

    fn make_all(&self) -> Result<Made, String> {
        let context = |ordinal: &usize| CudaContext::new(*ordinal).map_err(|error| error.to_string());
        let contexts = self.ordinals.iter().map(context).collect::<Result<Vec<_>, _>>()?;
        let CollectiveOptions { plan, half_window, patience, .. } = &self.options;
        let half = usize::try_from(*half_window).map_err(|error| error.to_string())?;
        let buffers = if plan.uses(Algorithm::Multimem.name()) { Buffers::Multicast } else { Buffers::None };
        let group = GpuGroup::new(&contexts, half, buffers, *patience).map_err(|error| {
            let message = error.to_string();
            // Whether a machine has multicast memory only the attempt proves; a plan without it is made then.
            if buffers == Buffers::Multicast {
                let algorithm = Algorithm::Multimem.name().to_owned();
                self.note_failure(SelfTestFailure { algorithm, message: message.clone() });
            }
            message
        })?;
        let nccl = match plan.uses("nccl") {
            true => NcclRank::all(&contexts)?.into_iter().map(Some).collect(),
            false => vec![None; contexts.len()],
        };
        Ok(Made { group, nccl })
    }

    /// Returns when every rank has come. Errors: the group ended.
    ///
    /// Ranks meet between what allocates and a collective: where peers map each other's memory, allocating can wait for
    /// the peer's device, and that for this rank.
    pub(crate) fn meet(&self) -> Result<(), String> {
        self.together.wait().map_err(|gone| self.reason().unwrap_or_else(|| gone.to_string()))
    }

    /// Ends the group: every rank that waits, on the host or on a device, ends with an error. The first message stays.
    pub fn poison(&self, message: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(|| message.to_owned());
        drop(ended);
        self.together.give_up();
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Made { group, nccl }) = made else { return };
        group.abort();
        self.aborted.store(true, Ordering::SeqCst);
        abort_all(nccl.into_iter().flatten());
    }

    /// Whether communicators of NCCL were aborted: recorded calls must not be destroyed after that, because they refer to
    /// memory of the communicator.
    pub(crate) fn aborted_nccl(&self) -> bool {
        self.options.plan.uses("nccl") && self.aborted.load(Ordering::SeqCst)
    }

    /// Why the group ended, if it did: what the devices say, else what the host said.
    pub(super) fn reason(&self) -> Option<String> {
        let devices = || {
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.as_ref().and_then(|made| made.group.ended(calls::name))
        };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone().or_else(devices)
    }

    /// Waits for a rank's stream as long as others may keep it waiting. Errors: the device failed, or the group ended.
    pub(crate) fn wait(&self, gpu: &Gpu, operation: &'static str) -> Result<(), BackendError> {
        // Our own kernels give up by themselves.
        if self.options.plan.uses("nccl") {
            self.wait_until(gpu, operation, self.options.patience + GRACE)?;
        } else {
            gpu.synchronise(operation)?;
        }
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if made.is_some_and(|made| made.group.is_over()) {
            let message = self.reason().unwrap_or_default();
            return Err(BackendError::Device { operation, message });
        }
        Ok(())
    }

    fn wait_until(&self, gpu: &Gpu, operation: &'static str, limit: Duration) -> Result<(), BackendError> {
        let finished = Patience::new(limit).wait(|slice| {
            let begin = Instant::now();
            loop {
                match gpu.idle(operation) {
                    Ok(false) if begin.elapsed() >= slice => return None,
                    Ok(false) => std::hint::spin_loop(),
                    finished => return Some(finished.map(drop)),
                }
            }
        });
        finished.unwrap_or_else(|| {
            let (gpu, seconds) = (gpu.context.ordinal(), limit.as_secs_f64());
            let message = format!("GPU {gpu} has not finished within {seconds:.1} s: {}", self.missing());
            self.poison(&message);
            Err(BackendError::Device { operation, message })
        })?;
        gpu.synchronise(operation)
    }

    /// Rank `rank` is about to launch the call of this number, or to replay a pass where there is none.
    pub(crate) fn count(&self, rank: usize, call: Option<u32>) {
        let before = self.progress[rank].load(Ordering::Relaxed) >> 16;
        let number = call.map_or(REPLAYED, |number| u64::from(number) & (REPLAYED - 1));
        self.progress[rank].store((before + 1) << 16 | number, Ordering::Relaxed);
    }

    /// Which ranks have launched less than others, and what they launched last.
    fn missing(&self) -> String {
        let progress: Vec<u64> = self.progress.iter().map(|rank| rank.load(Ordering::Relaxed)).collect();
        let most = progress.iter().map(|word| word >> 16).max().unwrap_or(0);
        let behind = progress.iter().enumerate().filter(|(_, word)| *word >> 16 < most);
        let words = behind.map(|(rank, word)| {
            let last = match word & 0xffff {
                REPLAYED => "a recorded pass".to_owned(),
                number => calls::name(number as u32),
            };
            format!("rank {rank} stopped after {last}, {} calls behind", most - (word >> 16))
        });
        let words = words.collect::<Vec<_>>().join("; ");
        if words.is_empty() { "every rank has launched as much, but a device does not end".to_owned() } else { words }
    }

    /// Notes which algorithm failed its test; the first one stays.
    pub(super) fn note_failure(&self, failure: SelfTestFailure) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Which algorithm failed its test, if one did.
    pub fn failure(&self) -> Option<SelfTestFailure> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Aborts all communicators at once: an abort waits for its device, which may wait for a kernel of another rank, which
/// ends when that rank's communicator is told. Returns when they are gone, or after a while.
fn abort_all(ranks: impl Iterator<Item = Arc<NcclRank>>) {
    let (sender, ended) = mpsc::channel();
    for rank in ranks {
        let sender = sender.clone();
        // Where no thread can be started, the process is about to end anyway.
        let _ = std::thread::Builder::new().name("NCCL abort".to_owned()).spawn(move || {
            rank.abort();
            drop(sender);
        });
    }
    drop(sender);
    // Nothing is sent: the channel closes when the last thread is done.
    let _: Result<(), _> = ended.recv_timeout(FAREWELL);
}

#[cfg(test)]
mod tests {
    use engine::collective::{Operation, Site};

    use super::*;

    fn group(ranks: usize) -> Arc<SharedGroup> {
        let plan = Arc::new(CollectivePlan::uniform("nccl"));
        let patience = CollectiveOptions::PATIENCE;
        let options = CollectiveOptions { plan, half_window: 0, hidden: 64, vocabulary: 128, patience };
        Arc::new(SharedGroup::new((0..ranks).collect(), options))
    }

    #[test]
    fn a_rank_that_fails_before_the_others_come_frees_them_with_its_reason() {
        let group = group(3);
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let group = Arc::clone(&group);
                std::thread::spawn(move || group.meet())
            })
            .collect();
        group.poison("rank 2: no memory");
        group.poison("later");
        for thread in waiting {
            assert_eq!(thread.join().expect("no panic"), Err("rank 2: no memory".to_owned()));
        }
        assert_eq!(group.meet(), Err("rank 2: no memory".to_owned()));
    }

    #[test]
    fn a_rank_that_launched_less_is_named_with_its_last_call() {
        let group = group(3);
        assert!(group.missing().contains("every rank"));
        let call = calls::number(Operation::AllReduce, Site::AttentionOutput);
        for rank in [0, 1, 2, 0, 2, 0] {
            group.count(rank, Some(call));
        }
        group.count(2, None);
        assert_eq!(group.missing(), "rank 1 stopped after all_reduce at attention_output, 2 calls behind");
        group.count(0, None);
        assert!(group.missing().contains("rank 2 stopped after a recorded pass, 1 calls behind"));
    }

    #[test]
    fn the_first_failure_of_a_self_test_stays() {
        let group = group(2);
        assert_eq!(group.failure(), None);
        for (algorithm, message) in [("one_shot", "wrong"), ("two_shot", "late")] {
            group.note_failure(SelfTestFailure { algorithm: algorithm.into(), message: message.into() });
        }
        assert_eq!(group.failure().map(|failure| failure.algorithm), Some("one_shot".to_owned()));
    }
}
