//! Words in the host's memory through which ranks and host stop each other.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cudarc::driver::sys;

use crate::device::DeviceError;

/// Each word has a cache line of its own.
const LINE: usize = 64;

/// A rank that waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub rank: usize,
    /// The rank that did not come.
    pub waited_for: usize,
    /// Which call of the engine it was in, as the launch said.
    pub call: u32,
    /// How many calls this group had begun.
    pub sequence: u32,
}

impl Fault {
    /// The word that `Call::over` of the kernels writes: a mark, 7 bits of the other rank, 24 of the call, 32 of the
    /// sequence.
    fn decode(rank: usize, word: u64) -> Option<Self> {
        let waited_for = (word >> 56 & 0x7f) as usize;
        let (call, sequence) = ((word >> 32 & 0xff_ffff) as u32, word as u32);
        (word >> 63 == 1).then_some(Self { rank, waited_for, call, sequence })
    }
}

/// An abort word for the group and a report for each rank, in pinned memory that every GPU sees.
pub(super) struct Signals {
    host: NonNull<u8>,
    device: u64,
    ranks: usize,
}

// SAFETY: the words are only touched as atomics.
unsafe impl Send for Signals {}
// SAFETY: as above.
unsafe impl Sync for Signals {}

impl Signals {
    /// A context must be current.
    pub fn new(ranks: usize) -> Result<Self, DeviceError> {
        let (mut host, mut device) = (std::ptr::null_mut::<c_void>(), 0);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let bytes = LINE * (ranks + 1);
        // SAFETY: the pointer is written before it is read.
        let allocated = unsafe { sys::cuMemHostAlloc(&raw mut host, bytes, flags) };
        allocated.result().map_err(|error| DeviceError::call("cuMemHostAlloc", error))?;
        // SAFETY: as many bytes as were allocated, and nobody else has them yet.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        // SAFETY: the memory was allocated to be mapped.
        let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, host, 0) };
        mapped.result().map_err(|error| DeviceError::call("cuMemHostGetDevicePointer", error))?;
        let host = NonNull::new(host.cast::<u8>());
        let none = || DeviceError::Call { call: "cuMemHostAlloc", message: "no memory".to_owned() };
        Ok(Self { host: host.ok_or_else(none)?, device, ranks })
    }

    /// On every device.
    pub fn abort_address(&self) -> u64 {
        self.device
    }

    pub fn report_address(&self, rank: usize) -> u64 {
        self.device + (LINE * (rank + 1)) as u64
    }

    fn abort_word(&self) -> &AtomicU32 {
        // SAFETY: aligned, allocated for as long as this lives, and only touched as an atomic.
        unsafe { AtomicU32::from_ptr(self.host.as_ptr().cast()) }
    }

    pub fn abort(&self) {
        self.abort_word().store(1, Ordering::Release);
    }

    pub fn aborted(&self) -> bool {
        self.abort_word().load(Ordering::Acquire) != 0
    }

    /// What ranks reported.
    pub fn faults(&self) -> Vec<Fault> {
        let word = |rank: usize| {
            // SAFETY: inside the allocation, aligned, only touched as an atomic.
            let word = unsafe { AtomicU64::from_ptr(self.host.as_ptr().add(LINE * (rank + 1)).cast()) };
            word.load(Ordering::Acquire)
        };
        (0..self.ranks).filter_map(|rank| Fault::decode(rank, word(rank))).collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once; the group's kernels have ended.
        let _ = unsafe { sys::cuMemFreeHost(self.host.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn a_report_says_who_waited_for_whom_and_where() {
        let word = 1 << 63 | 5 << 56 | 0x00ab_cdef << 32 | 77;
        let fault = Fault { rank: 3, waited_for: 5, call: 0x00ab_cdef, sequence: 77 };
        assert_eq!(Fault::decode(3, word), Some(fault));
        assert_eq!(Fault::decode(3, 0), None);
    }
}
