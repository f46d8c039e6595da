//! Working memory of the sampler, reused from token to token so that sampling does not allocate.

use super::change::LogitChange;
use super::filter::Filter;

/// Buffers for sampling one row at a time. One per thread that samples; holds no state between calls.
#[derive(Debug, Default)]
pub struct SamplerScratch {
    /// Logits that were changed, with their value before: undone in reverse.
    pub(super) changed: Vec<(u32, f32)>,
    /// Sum of the weights of each block of the vocabulary.
    pub(super) blocks: Vec<u64>,
    pub(super) filter: Filter,
    /// What is done to the row.
    pub(super) changes: Vec<LogitChange>,
}

impl SamplerScratch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one logit and remembers what it was.
    pub(super) fn set(&mut self, logits: &mut [f32], id: u32, value: impl FnOnce(f32) -> f32) {
        if let Some(logit) = logits.get_mut(id as usize) {
            self.changed.push((id, *logit));
            *logit = value(*logit);
        }
    }

    /// Gives every changed logit its first value back.
    pub(super) fn restore(&mut self, logits: &mut [f32]) {
        while let Some((id, before)) = self.changed.pop() {
            logits[id as usize] = before;
        }
    }
}
