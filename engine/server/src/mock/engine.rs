//! The mock engine: answers at once on the caller's thread, or token by token on its own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::runner::{EngineStats, Health, Observer, SubmitError};
use engine::types::{EventSink, Request, RequestId};

use super::PAGE_SIZE;
use super::books::Books;
use super::sequence::Sequence;
use crate::backend::Backend;

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
    pages: u32,
    books: Books,
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
    pub fn start(interval: Duration, slots: usize, pages: u32, observer: Arc<dyn Observer>) -> Self {
        let (state, wake, books) = (Mutex::default(), Condvar::new(), Books::new(observer));
        let shared = Arc::new(Shared { state, wake, interval, slots, pages, books });
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
            state.running.retain_mut(|sequence| sequence.step(&self.books));
            drop(state);
            std::thread::sleep(self.interval);
        }
    }
}

impl Backend for MockEngine {
    fn submit(&self, request: Request, sink: Box<dyn EventSink>) -> Result<(), SubmitError> {
        self.shared.books.submitted(&request);
        let mut sequence = Sequence::new(request, sink);
        if self.thread.is_none() {
            while sequence.step(&self.shared.books) {}
            return Ok(());
        }
        let mut state = self.shared.lock();
        if let Some(reason) = &state.failure {
            return Err(SubmitError::Unhealthy(reason.clone()));
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
        let pages = |sequence: &Sequence| (sequence.tokens() as u32).div_ceil(PAGE_SIZE) * sequence.outputs();
        EngineStats {
            running: state.running.iter().map(Sequence::outputs).sum(),
            waiting: state.waiting.iter().map(Sequence::outputs).sum(),
            pages_total: self.shared.pages,
            pages_used: state.running.iter().map(pages).sum(),
            ..self.shared.books.stats()
        }
    }

    fn health(&self) -> Health {
        // A mock that answers at once keeps no state that could fail, and its callers are many.
        if self.thread.is_none() {
            return Health::Ready;
        }
        self.shared.lock().failure.clone().map_or(Health::Ready, Health::Failed)
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
