//! The handle through which everyone else reaches the engine.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::shared::Shared;
use super::validate::{validate, validate_capacity};
use super::worker::Worker;
use super::{EngineConfig, EngineStats, Health, Observer, StartError, SubmitError, TextPipeline};
use crate::executor::{Capacity, Executor};
use crate::spec::PaceReport;
use crate::types::{EventSink, Request, RequestId};

/// What the handle asks of the engine's thread.
pub(super) enum Command {
    Submit {
        request: Request,
        sink: Box<dyn EventSink>,
        at: Instant,
    },
    Abort(RequestId),
    /// Finish what was submitted; abort what is left at the deadline, if there is one; then end.
    Drain {
        deadline: Option<Instant>,
    },
}

/// How long the last handle waits for the engine's thread, which takes the executor down: longer than that waits for its ranks.
const FAREWELL: Duration = Duration::from_secs(10);

/// The running engine. Clones share it; when the last one is dropped, what still runs is aborted and the thread ends. The
/// drop waits for that: a process that ends while a thread of it still frees a device's memory can crash on its way out.
#[derive(Clone)]
pub struct Engine {
    pub(super) shared: Arc<Shared>,
    // Dropped before the end is waited for: the thread ends when nobody can send any more.
    pub(super) commands: Sender<Command>,
    _end: Arc<End>,
}

/// What is never sent.
enum Never {}

/// The end of the engine's thread.
struct End {
    /// Nothing is sent: the channel closes when the thread has dropped everything.
    ended: Mutex<Receiver<Never>>,
    thread: ThreadId,
}

impl Drop for End {
    fn drop(&mut self) {
        // An event's receiver may hold the last handle and be dropped by the engine itself.
        if std::thread::current().id() != self.thread {
            let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _: Result<Never, _> = ended.recv_timeout(FAREWELL);
        }
    }
}

impl Engine {
    /// Starts the engine's thread on an executor that is ready to run steps.
    pub fn start(
        executor: Box<dyn Executor>,
        text: Arc<dyn TextPipeline>,
        observer: Arc<dyn Observer>,
        config: EngineConfig,
    ) -> Result<Self, StartError> {
        let capacity = executor.capacity();
        validate_capacity(&capacity)?;
        let shared = Arc::new(Shared::new(config, capacity));
        let (sender, commands) = channel();
        let (ending, ended) = channel::<Never>();
        let worker = Worker::new(executor, text, observer, shared.clone(), commands);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            worker.run();
            drop(ending);
        });
        let thread = thread.map_err(StartError::Thread)?;
        let end = End { ended: Mutex::new(ended), thread: thread.thread().id() };
        Ok(Self { shared, commands: sender, _end: Arc::new(end) })
    }

    /// Takes a request, or says at once why not. Events go to `sink` on the engine's thread, in order, the last one
    /// being `Finished` of the last output or `Failed`.
    pub fn submit(&self, request: Request, sink: Box<dyn EventSink>) -> Result<(), SubmitError> {
        self.refuse_if_closed()?;
        validate(&request, &self.shared.capacity, &self.shared.config)?;
        self.shared.enter_queue(request.prompt.len() as u64)?;
        let prompt_tokens = request.prompt.len() as u64;
        let command = Command::Submit { request, sink, at: Instant::now() };
        self.commands.send(command).map_err(|_| {
            self.shared.leave_queue(prompt_tokens);
            self.refuse_if_closed().err().unwrap_or(SubmitError::ShuttingDown)
        })
    }

    /// Ends a request wherever it is; its outputs finish with `Abort`. An unknown id is ignored: it may just have ended.
    pub fn abort(&self, id: RequestId) {
        // A thread that has ended has no request left.
        let _ = self.commands.send(Command::Abort(id));
    }

    /// Refuses new requests from now on and blocks until everything submitted has ended, or until the deadline, at
    /// which the rest is aborted. Returns how many outputs that cut off.
    pub fn drain(&self, deadline: Duration) -> u32 {
        self.shared.set_health(Health::Draining);
        // A thread that has ended needs no telling.
        let _ = self.commands.send(Command::Drain { deadline: Instant::now().checked_add(deadline) });
        self.shared.wait_for_end()
    }

    pub fn stats(&self) -> EngineStats {
        self.shared.stats()
    }

    /// What was measured of speculation; none without it.
    pub fn speculation(&self) -> Option<PaceReport> {
        self.shared.pace().map(|pace| pace.report())
    }

    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// What the executor can hold.
    pub fn capacity(&self) -> Capacity {
        self.shared.capacity
    }

    fn refuse_if_closed(&self) -> Result<(), SubmitError> {
        if self.shared.takes_requests() {
            return Ok(());
        }
        match self.health() {
            Health::Failed(message) => Err(SubmitError::Unhealthy(message)),
            _ => Err(SubmitError::ShuttingDown),
        }
    }
}
