//! The mock engine: answers at once on the caller's thread, or token by token on its own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::types::{EventSink, Request, RequestFailure, RequestId};

use super::sequence::Sequence;
use crate::backend::{Backend, EngineStats};

const PAGE_SIZE: usize = 16;

/// See the module.
pub struct MockEngine {
    shared: Arc<Shared>,
    /// None if requests are answered at once.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    interval: Duration,
    slots: usize,
}

#[derive(Default)]
struct State {
    running: Vec<Sequence>,
    waiting: VecDeque<Sequence>,
    failure: Option<String>,
    closed: bool,
}

impl MockEngine {
    /// Starts an engine that makes a token of up to `slots` requests every `interval`, or all tokens at once if the
    /// interval is zero.
    pub fn start(interval: Duration, slots: usize) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), interval, slots });
        let thread = (!interval.is_zero()).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.run())
        });
        Self { shared, thread }
    }

    /// Makes the engine say that it cannot go on.
    pub fn fail(&self, reason: &str) {
        let mut state = self.shared.lock();
        state.failure = Some(reason.to_owned());
        let State { running, waiting, .. } = &mut *state;
        for sequence in running.drain(..).chain(waiting.drain(..)) {
            sequence.fail(reason);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut state = self.lock();
            while state.running.is_empty() && state.waiting.is_empty() && !state.closed {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.closed {
                return;
            }
            while state.running.len() < self.slots {
                let Some(next) = state.waiting.pop_front() else { break };
                state.running.push(next);
            }
            state.running.retain_mut(Sequence::step);
            drop(state);
            std::thread::sleep(self.interval);
        }
    }
}

impl Backend for MockEngine {
    fn submit(&self, request: Request, sink: Box<dyn EventSink>) -> Result<(), RequestFailure> {
        let mut sequence = Sequence::new(request, sink);
        if self.thread.is_none() {
            while sequence.step() {}
            return Ok(());
        }
        let mut state = self.shared.lock();
        if let Some(reason) = &state.failure {
            return Err(RequestFailure::Engine(reason.clone()));
        }
        state.waiting.push_back(sequence);
        self.shared.wake.notify_one();
        Ok(())
    }

    fn abort(&self, id: RequestId) {
        if self.thread.is_none() {
            return;
        }
        let mut state = self.shared.lock();
        state.running.retain(|sequence| sequence.id() != id);
        state.waiting.retain(|sequence| sequence.id() != id);
    }

    fn stats(&self) -> EngineStats {
        let state = self.shared.lock();
        EngineStats {
            running: state.running.iter().map(Sequence::outputs).sum(),
            waiting: state.waiting.iter().map(Sequence::outputs).sum(),
            pages_used: state.running.iter().map(|sequence| sequence.tokens().div_ceil(PAGE_SIZE) as u64).sum(),
            ..EngineStats::default()
        }
    }

    fn failure(&self) -> Option<String> {
        self.shared.lock().failure.clone()
    }
}

impl Drop for MockEngine {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
