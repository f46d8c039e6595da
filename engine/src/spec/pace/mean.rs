//! A mean that follows what changes.

/// The mean of the first values, then one that forgets old values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    value: f64,
    count: u64,
}

/// Values after which an old one counts for little.
const MEMORY: u64 = 64;

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.value += (value - self.value) / self.count.min(MEMORY) as f64;
    }

    pub fn value(&self) -> f64 {
        self.value
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}
