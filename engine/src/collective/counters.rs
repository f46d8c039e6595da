//! Counts of the collectives that really ran.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Operation, Rung, Site};
use crate::types::Phase;

/// Message sizes up to a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeBucket(u32);

impl SizeBucket {
    /// The bucket of a message of `bytes` per rank; bounds are inclusive and start at 1 KiB.
    pub fn of(bytes: u64) -> Self {
        Self(bytes.clamp(1024, 1 << 62).next_power_of_two().ilog2())
    }

    /// The largest message of the bucket.
    pub fn bytes(self) -> u64 {
        1 << self.0
    }
}

impl fmt::Display for SizeBucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            30.. => write!(formatter, "{}GiB", 1u64 << (self.0 - 30)),
            20.. => write!(formatter, "{}MiB", 1u64 << (self.0 - 20)),
            _ => write!(formatter, "{}KiB", self.bytes() / 1024),
        }
    }
}

/// The labels of one counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallKey {
    pub operation: Operation,
    pub site: Site,
    pub phase: Phase,
    pub algorithm: Arc<str>,
    pub fusion: Arc<str>,
    pub bucket: SizeBucket,
}

impl CallKey {
    pub fn new(operation: Operation, site: Site, phase: Phase, rung: &Rung, bytes: u64) -> Self {
        let (algorithm, fusion) = (Arc::clone(&rung.algorithm), Arc::clone(&rung.fusion));
        Self { operation, site, phase, algorithm, fusion, bucket: SizeBucket::of(bytes) }
    }
}

/// Calls of one group of ranks, shared between the rank that counts and those who report.
#[derive(Debug, Default)]
pub struct CallCounters {
    calls: Mutex<BTreeMap<CallKey, u64>>,
}

impl CallCounters {
    /// Adds `count` calls; more than one when a captured graph that holds them was replayed.
    pub fn add(&self, key: CallKey, count: u64) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(key).or_insert(0) += count;
    }

    pub fn snapshot(&self) -> Vec<(CallKey, u64)> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().map(|(key, count)| (key.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::SizeBucket;

    #[test]
    fn buckets_are_inclusive_powers_of_two() {
        for (bytes, label) in [
            (0, "1KiB"),
            (1024, "1KiB"),
            (1025, "2KiB"),
            (114_688, "128KiB"),
            (1 << 20, "1MiB"),
            ((1 << 30) + 1, "2GiB"),
        ] {
            assert_eq!(SizeBucket::of(bytes).to_string(), label, "{bytes} bytes");
        }
    }
}
