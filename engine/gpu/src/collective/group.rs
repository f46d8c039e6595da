use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cudarc::driver::CudaContext;

use super::signals::{Fault, Signals};
use crate::device::DeviceError;
use crate::kernels::{BufferView, GroupView};
use crate::symmetric::{Multicast, SymmetricMemory};

/// A word of a window in which nothing has arrived, byte by byte.
const EMPTY: u8 = 0xff;
/// Room for a rank's progress behind its window.
const PROGRESS: usize = 256;

/// What stands behind each rank's window for sums by multicast memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    None,
    /// Buffers that ranks reach one by one: for the simulated kernels.
    Apart,
    /// The same, bound to one multicast address.
    Multicast,
}

/// What all ranks of a group share: windows, and the words that stop it.
pub struct GpuGroup {
    // Dropped in this order: the binding before what is bound, and windows wait for kernels that may still write to the
    // signals.
    multicast: Option<Multicast>,
    windows: Option<SymmetricMemory>,
    buffers: Buffers,
    signals: Signals,
    half: usize,
    /// Nanoseconds.
    patience: AtomicU64,
    ranks: usize,
}

impl GpuGroup {
    /// A group with a rank on each GPU, in order, and windows of two halves of `half` bytes, and a buffer as large where
    /// `buffers` says so; none where that is 0. `patience` is how long a rank waits for another. Errors: no peer access, no
    /// memory, no multicast.
    pub fn new(
        contexts: &[Arc<CudaContext>],
        half: usize,
        buffers: Buffers,
        patience: Duration,
    ) -> Result<Arc<Self>, DeviceError> {
        let half = half.next_multiple_of(PROGRESS);
        let granularity = if buffers == Buffers::Multicast { Multicast::granularity(contexts)? } else { 1 };
        let bytes = 2 * half + PROGRESS + if buffers == Buffers::None { 0 } else { half };
        let windows = (half > 0).then(|| SymmetricMemory::new(contexts, bytes, granularity)).transpose()?;
        let bound = windows.as_ref().filter(|_| buffers == Buffers::Multicast);
        let multicast = bound.map(Multicast::bind).transpose()?;
        for rank in 0..contexts.len() {
            let Some(windows) = &windows else { continue };
            windows.set(rank, 0, EMPTY, 2 * half)?;
            windows.set(rank, 2 * half, 0, PROGRESS)?;
        }
        let signals = Signals::new(contexts.len())?;
        let group =
            Self { multicast, windows, buffers, signals, half, patience: AtomicU64::new(0), ranks: contexts.len() };
        group.set_patience(patience);
        Ok(Arc::new(group))
    }

    /// How long ranks wait for each other in calls that are launched from now on.
    pub fn set_patience(&self, patience: Duration) {
        self.patience.store(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Bytes of one rank's window and what stands behind it, as they were allocated.
    pub fn window_bytes(&self) -> usize {
        self.windows.as_ref().map_or(0, SymmetricMemory::window)
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of half a window.
    pub fn half(&self) -> u64 {
        self.half as u64
    }

    /// Where sums by multicast memory are made, in a group that has buffers for them.
    pub fn buffer(&self) -> Option<BufferView> {
        let offset = 2 * self.half() + PROGRESS as u64;
        let multicast = self.multicast.as_ref().map(|multicast| multicast.address() + offset);
        (self.buffers != Buffers::None && self.half > 0).then_some(BufferView { offset, bytes: self.half(), multicast })
    }

    /// The group as rank `rank`'s kernels see it, in a call named `call`. Without windows nothing fits in it.
    pub fn view(&self, rank: usize, call: u32) -> GroupView {
        let address = |rank: usize| self.windows.as_ref().map_or(0, |windows| windows.address(rank));
        GroupView {
            windows: address(0),
            window: self.window_bytes() as u64,
            progress: address(rank) + 2 * self.half(),
            abort: self.signals.abort_address(),
            report: self.signals.report_address(rank),
            half: self.half(),
            patience: self.patience.load(Ordering::Relaxed),
            rank: rank as u32,
            ranks: self.ranks as u32,
            call,
            reserved: 0,
        }
    }

    /// Ends every wait on every rank, now and from now on.
    pub fn abort(&self) {
        self.signals.abort();
    }

    /// Why the group ended, if it did. `name` says what a call is.
    pub fn ended(&self, name: impl Fn(u32) -> String) -> Option<String> {
        if !self.signals.aborted() {
            return None;
        }
        let patience = Duration::from_nanos(self.patience.load(Ordering::Relaxed));
        Some(describe(&self.signals.faults(), patience, name))
    }

    /// Whether the group has ended.
    pub fn is_over(&self) -> bool {
        self.signals.aborted()
    }
}

fn describe(faults: &[Fault], patience: Duration, name: impl Fn(u32) -> String) -> String {
    let one = |fault: &Fault| {
        let Fault { rank, waited_for, call, sequence } = *fault;
        let seconds = patience.as_secs_f64();
        format!("rank {rank} waited {seconds:.1} s for rank {waited_for} in {} (collective {sequence})", name(call))
    };
    match faults {
        [] => "the group was ended by the host".to_owned(),
        faults => faults.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Fault, describe};

    #[test]
    fn a_stall_names_ranks_site_and_step() {
        let fault = Fault { rank: 1, waited_for: 0, call: 2, sequence: 41 };
        let text = describe(&[fault], Duration::from_secs(5), |call| format!("site {call}"));
        assert_eq!(text, "rank 1 waited 5.0 s for rank 0 in site 2 (collective 41)");
        assert!(describe(&[], Duration::ZERO, |_| String::new()).contains("by the host"));
    }
}
