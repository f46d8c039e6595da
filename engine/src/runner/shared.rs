//! What the handle and the engine's thread share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{EngineConfig, EngineStats, Health, SubmitError};
use crate::executor::Capacity;
use crate::spec::Pace;

/// State that handle and thread share.
pub(super) struct Shared {
    pub config: EngineConfig,
    pub capacity: Capacity,
    /// Requests and prompt tokens that were submitted and not yet admitted.
    waiting_requests: AtomicU64,
    waiting_tokens: AtomicU64,
    takes_requests: AtomicBool,
    status: Mutex<Status>,
    changed: Condvar,
    /// None without speculation.
    pace: Option<Mutex<Pace>>,
}

struct Status {
    health: Health,
    stats: EngineStats,
    /// Outputs that the deadline of a drain cut off.
    cut_off: u32,
    /// The thread has answered everything and is about to be gone.
    ended: bool,
}

impl Shared {
    pub fn new(config: EngineConfig, capacity: Capacity) -> Self {
        let stats = EngineStats { pages_total: capacity.pages, ..Default::default() };
        Self {
            pace: config.speculation.map(|settings| Mutex::new(Pace::new(settings))),
            config,
            capacity,
            waiting_requests: AtomicU64::new(0),
            waiting_tokens: AtomicU64::new(0),
            takes_requests: AtomicBool::new(true),
            status: Mutex::new(Status { health: Health::Ready, stats, cut_off: 0, ended: false }),
            changed: Condvar::new(),
        }
    }

    /// Measurements and widths of speculation; none without it.
    pub fn pace(&self) -> Option<MutexGuard<'_, Pace>> {
        Some(self.pace.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn stats(&self) -> EngineStats {
        self.status().stats
    }

    pub fn health(&self) -> Health {
        self.status().health.clone()
    }

    /// Cheaper than `health`, for every submission.
    pub fn takes_requests(&self) -> bool {
        self.takes_requests.load(Ordering::Acquire)
    }

    pub fn set_ended(&self) {
        self.status().ended = true;
        self.changed.notify_all();
    }

    /// Blocks until the engine's thread has ended; returns how many outputs a drain cut off.
    pub fn wait_for_end(&self) -> u32 {
        let mut status = self.status();
        while !status.ended {
            status = self.changed.wait(status).unwrap_or_else(PoisonError::into_inner);
        }
        status.cut_off
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_stats(&self, stats: EngineStats) {
        self.status().stats = stats;
    }

    pub fn set_cut_off(&self, outputs: u32) {
        self.status().cut_off = outputs;
    }

    /// Ends the ready state. What has failed or stopped stays so.
    pub fn set_health(&self, health: Health) {
        let mut status = self.status();
        if matches!(status.health, Health::Failed(_) | Health::Stopped) {
            return;
        }
        status.health = health;
        self.takes_requests.store(false, Ordering::Release);
    }

    /// A request was admitted or ended before that.
    pub fn leave_queue(&self, prompt_tokens: u64) {
        self.waiting_requests.fetch_sub(1, Ordering::AcqRel);
        self.waiting_tokens.fetch_sub(prompt_tokens, Ordering::AcqRel);
    }

    /// Requests and prompt tokens in the queue.
    #[cfg(test)]
    pub fn queue_lengths(&self) -> (u64, u64) {
        (self.waiting_requests.load(Ordering::Acquire), self.waiting_tokens.load(Ordering::Acquire))
    }

    pub fn enter_queue(&self, prompt_tokens: u64) -> Result<(), SubmitError> {
        enter(&self.waiting_requests, 1, u64::from(self.config.max_waiting), "requests")?;
        enter(&self.waiting_tokens, prompt_tokens, self.config.max_waiting_tokens, "prompt tokens").inspect_err(|_| {
            self.waiting_requests.fetch_sub(1, Ordering::AcqRel);
        })
    }
}

fn enter(counter: &AtomicU64, amount: u64, limit: u64, what: &'static str) -> Result<(), SubmitError> {
    let add = |waiting: u64| waiting.checked_add(amount).filter(|sum| *sum <= limit);
    match counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
        Ok(_) => Ok(()),
        Err(waiting) => Err(SubmitError::QueueFull { what, waiting, limit }),
    }
}
