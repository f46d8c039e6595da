//! Numbers of the engine at one moment, in the sense of the usual dashboards.

/// A snapshot, taken after each step. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sequences (each of a request's `n` outputs is one) that hold a slot.
    pub running: u32,
    /// Sequences that wait for a slot, preempted ones included.
    pub waiting: u32,
    pub pages_total: u32,
    /// Pages that running sequences hold; pages kept for the prefix cache alone are not counted.
    pub pages_used: u32,
    /// Pages that hold a cached prefix, in use or not.
    pub pages_cached: u32,
    pub steps: u64,
    /// Those of them that were submitted while the step before was in flight.
    pub following_steps: u64,
    pub preemptions: u64,
    /// Prompt tokens that were looked up in the prefix cache, and those found there.
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    /// Prefix hits that failed the integrity check and were computed anew. Anything but 0 is a defect.
    pub integrity_failures: u64,
    /// Prompt tokens of the admitted sequences, cached ones included.
    pub prompt_tokens: u64,
    pub generation_tokens: u64,
    /// Outputs by how they ended.
    pub finished_stop: u64,
    pub finished_length: u64,
    pub finished_abort: u64,
    pub failed: u64,
    /// Verify entries, tokens drafted in them, tokens accepted.
    pub drafts: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
}

impl EngineStats {
    /// Share of the pages in use, from 0 to 1.
    pub fn cache_usage(&self) -> f64 {
        if self.pages_total == 0 { 0.0 } else { f64::from(self.pages_used) / f64::from(self.pages_total) }
    }
}
