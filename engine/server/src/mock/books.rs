//! What the mock engine counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::runner::{EngineStats, Observation, Observer, Outcome, OutputTimes};
use engine::types::{FinishReason, Request};

/// Counters since start, and the observer.
pub struct Books {
    observer: Arc<dyn Observer>,
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    stopped: AtomicU64,
    cut: AtomicU64,
}

impl Books {
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        let zero = AtomicU64::default;
        Self { observer, prompt_tokens: zero(), generation_tokens: zero(), stopped: zero(), cut: zero() }
    }

    pub fn submitted(&self, request: &Request) {
        self.prompt_tokens.fetch_add(request.prompt.len() as u64, Ordering::Relaxed);
    }

    /// One token of each of `outputs` outputs.
    pub fn token(&self, outputs: u32, observation: &Observation) {
        self.generation_tokens.fetch_add(u64::from(outputs), Ordering::Relaxed);
        for _ in 0..outputs {
            self.observer.observe(observation);
        }
    }

    pub fn output(&self, times: &OutputTimes) {
        let counter = match times.outcome {
            Outcome::Finished(FinishReason::Length) => &self.cut,
            _ => &self.stopped,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.observer.observe(&Observation::Output(*times));
    }

    pub fn stats(&self) -> EngineStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStats {
            prompt_tokens: read(&self.prompt_tokens),
            generation_tokens: read(&self.generation_tokens),
            finished_stop: read(&self.stopped),
            finished_length: read(&self.cut),
            ..EngineStats::default()
        }
    }
}
