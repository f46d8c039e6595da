//! The engine's thread: receives requests, runs steps, parks when there is nothing to do.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::engine::Command;
use super::request::{ActiveRequest, OutputState};
use super::shared::Shared;
use super::step::{Collected, Submitted};
use super::validate::usable_context;
use super::{EngineStats, Health, Observer, TextPipeline};
use crate::cache::{CacheConfig, CacheGroup};
use crate::executor::Executor;
use crate::scheduler::{Plan, Scheduler, SchedulerConfig, SequenceId};
use crate::types::{RequestEvent, RequestFailure, RequestId};

/// An idle engine audits its books, but not more often than this.
const AUDIT_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct Worker {
    pub scheduler: Scheduler,
    pub executor: Box<dyn Executor>,
    pub text: Arc<dyn TextPipeline>,
    pub observer: Arc<dyn Observer>,
    pub shared: Arc<Shared>,
    commands: Receiver<Command>,
    pub requests: HashMap<RequestId, ActiveRequest>,
    pub outputs: HashMap<SequenceId, OutputState>,
    /// Counters that the scheduler does not keep.
    pub counters: EngineStats,
    /// The next step, planned while the one before was in flight.
    pub prepared: Option<Plan>,
    /// The next step, submitted while the one before is in flight.
    pub following: Option<Submitted>,
    /// The last step's output, not yet sent.
    pub collected: Option<Collected>,
    /// Set once draining: when to abort what is left.
    drain: Option<Option<Instant>>,
    /// Every handle is gone.
    abandoned: bool,
    audited: Instant,
}

impl Worker {
    pub fn new(
        executor: Box<dyn Executor>,
        text: Arc<dyn TextPipeline>,
        observer: Arc<dyn Observer>,
        shared: Arc<Shared>,
        commands: Receiver<Command>,
    ) -> Self {
        let (capacity, config) = (shared.capacity, &shared.config);
        let scheduler = Scheduler::new(SchedulerConfig {
            cache: CacheConfig { pages: capacity.pages, groups: groups(config.speculation.is_some()) },
            slots: capacity.slots,
            rows: capacity.rows,
            max_prefill_rows: config.max_prefill_rows,
            context: usable_context(&capacity),
            vocabulary: capacity.vocabulary,
            end_tokens: config.end_tokens.clone(),
            prefix_cache: config.prefix_cache,
            verify_tokens: config.speculation.map_or(0, |settings| settings.shape.verify_tokens as u32),
        });
        Self {
            scheduler,
            executor,
            text,
            observer,
            shared,
            commands,
            requests: HashMap::new(),
            outputs: HashMap::new(),
            counters: EngineStats::default(),
            prepared: None,
            following: None,
            collected: None,
            drain: None,
            abandoned: false,
            audited: Instant::now(),
        }
    }

    /// The thread's body. A panic in here is a failure of the engine, not of the process.
    pub fn run(mut self) {
        let result = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let health = match result {
            Ok(()) => Health::Stopped,
            Err(panic) => Health::Failed(format!("the engine's thread panicked: {}", panic_message(&*panic))),
        };
        self.shared.set_health(health);
        // Sinks may be what panicked: dropping them tells their receivers as well as a last event would.
        let _ = catch_unwind(AssertUnwindSafe(|| self.close_queue()));
        self.shared.set_ended();
    }

    fn serve(&mut self) {
        loop {
            self.receive();
            if self.abandoned || self.past_deadline() {
                self.abort_all();
            }
            if !self.is_idle() {
                self.step();
            } else if self.abandoned || self.drain.is_some() {
                return self.publish_stats();
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.scheduler.is_idle() && self.collected.is_none()
    }

    fn past_deadline(&self) -> bool {
        matches!(self.drain, Some(Some(deadline)) if Instant::now() >= deadline)
    }

    /// Takes every command that is there. An idle engine waits for one; that costs nothing.
    fn receive(&mut self) {
        if self.is_idle() && self.drain.is_none() && !self.abandoned {
            self.before_parking();
            match self.commands.recv() {
                Ok(command) => self.obey(command),
                Err(_) => self.abandoned = true,
            }
        }
        self.receive_ready();
    }

    pub fn receive_ready(&mut self) {
        while !self.abandoned {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.abandoned = true,
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { request, sink, at } => self.accept(request, sink, at),
            Command::Abort(id) => self.abort(id),
            Command::Drain { deadline } => self.drain = Some(deadline),
        }
    }

    fn before_parking(&mut self) {
        if self.audited.elapsed() >= AUDIT_INTERVAL {
            if let Err(error) = self.scheduler.check_integrity() {
                tracing::error!("{error}");
                self.counters.integrity_failures += 1;
            }
            self.audited = Instant::now();
        }
        self.publish_stats();
    }

    /// Aborts what is left, and counts it as cut off by a drain if there is one.
    fn abort_all(&mut self) {
        let cut_off = self.outputs.len() as u32;
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        ids.into_iter().for_each(|id| self.abort(id));
        if self.drain.is_some() && cut_off > 0 {
            self.shared.set_cut_off(cut_off);
        }
    }

    /// Answers whatever was submitted and will not be served any more.
    fn close_queue(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Submit { request, sink, .. } = command {
                self.shared.leave_queue(request.prompt.len() as u64);
                sink.send(RequestEvent::Failed(self.refusal()));
            }
        }
    }

    pub fn refusal(&self) -> RequestFailure {
        match self.shared.health() {
            Health::Failed(message) => RequestFailure::Engine(message),
            _ => RequestFailure::ShuttingDown,
        }
    }

    pub fn publish_stats(&self) {
        let scheduler = self.scheduler.stats();
        self.shared.set_stats(EngineStats {
            running: scheduler.running as u32,
            waiting: scheduler.waiting as u32,
            pages_total: scheduler.usage.total as u32,
            pages_used: scheduler.usage.held as u32,
            pages_cached: scheduler.usage.cached as u32,
            steps: scheduler.steps,
            preemptions: scheduler.preemptions,
            prefix_queries: scheduler.prefix_queries,
            prefix_hits: scheduler.prefix_hits,
            integrity_failures: self.counters.integrity_failures + scheduler.integrity_failures,
            prompt_tokens: scheduler.prompt_tokens,
            ..self.counters
        });
    }
}

/// The cache groups that share the block tables.
fn groups(speculates: bool) -> Vec<CacheGroup> {
    let draft = speculates.then_some(CacheGroup::DRAFT);
    std::iter::once(CacheGroup::TARGET).chain(draft).collect()
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
