use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaContext;

use super::signals::{Fault, Signals};
use crate::device::DeviceError;
use crate::kernels::GroupView;
use crate::symmetric::SymmetricMemory;

/// A word of a window in which nothing has arrived, byte by byte.
const EMPTY: u8 = 0xff;
/// Room for a rank's progress behind its window.
const PROGRESS: usize = 256;

/// What all ranks of a group share: windows, and the words that stop it.
pub struct GpuGroup {
    // Dropped in this order: windows wait for kernels that may still write to the signals.
    windows: SymmetricMemory,
    signals: Signals,
    half: usize,
    patience: Duration,
    ranks: usize,
}

impl GpuGroup {
    /// A group with a rank on each GPU, in order, and windows of two halves of `half` bytes (a multiple of 16).
    /// `patience` is how long a rank waits for another. Errors: no peer access, no memory.
    pub fn new(contexts: &[Arc<CudaContext>], half: usize, patience: Duration) -> Result<Arc<Self>, DeviceError> {
        let half = half.next_multiple_of(PROGRESS);
        let windows = SymmetricMemory::new(contexts, 2 * half + PROGRESS)?;
        for rank in 0..contexts.len() {
            windows.set(rank, 0, EMPTY, 2 * half)?;
            windows.set(rank, 2 * half, 0, PROGRESS)?;
        }
        let signals = Signals::new(contexts.len())?;
        Ok(Arc::new(Self { windows, signals, half, patience, ranks: contexts.len() }))
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of half a window.
    pub fn half(&self) -> u64 {
        self.half as u64
    }

    /// The group as rank `rank`'s kernels see it, in a call named `call`.
    pub fn view(&self, rank: usize, call: u32) -> GroupView {
        GroupView {
            windows: self.windows.address(0),
            window: self.windows.window() as u64,
            progress: self.windows.address(rank) + 2 * self.half(),
            abort: self.signals.abort_address(),
            report: self.signals.report_address(rank),
            half: self.half(),
            patience: u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX),
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
        Some(describe(&self.signals.faults(), self.patience, name))
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
