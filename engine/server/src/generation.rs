//! A submitted job: its events, and its abort when nobody waits for them any more.

use std::sync::Arc;

use engine::runner::SubmitError;
use engine::types::{EventSink, FinishReason, Request, RequestEvent, RequestFailure, RequestId, SamplingParams};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::admission::Permit;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::ids;
use crate::request::Job;
use crate::service::Service;

/// An event and the number of the prompt that it belongs to.
pub type TaskEvent = (usize, RequestEvent);

/// A job that runs. Dropping it aborts what has not finished.
pub struct Generation {
    backend: Arc<dyn Backend>,
    ids: Vec<RequestId>,
    events: UnboundedReceiver<TaskEvent>,
    /// Outputs whose last event has not come.
    open: usize,
    closed: watch::Receiver<bool>,
    _permit: Permit,
}

/// Hands the events of one request from the engine's thread to the connection's task. The channel needs no bound:
/// it holds at most one output per token that the request may make.
struct Sink {
    task: usize,
    events: UnboundedSender<TaskEvent>,
}

impl EventSink for Sink {
    fn send(&self, event: RequestEvent) -> bool {
        self.events.send((self.task, event)).is_ok()
    }
}

impl Generation {
    /// Submits every task of a job.
    pub fn start(job: &Job, service: &Service, permit: Permit) -> Result<Self, ApiError> {
        let (sender, events) = unbounded_channel();
        let backend = Arc::clone(&service.backend);
        let closed = permit.closed();
        let mut generation = Self { backend, ids: Vec::new(), events, open: 0, closed, _permit: permit };
        for (index, task) in job.tasks.iter().enumerate() {
            let id = ids::request_id();
            let request = Request {
                id,
                prompt: Arc::clone(&task.prompt),
                params: Arc::clone(&task.params),
                priority: job.priority,
                cache_salt: job.cache_salt.clone(),
            };
            let sink = Box::new(Sink { task: index, events: sender.clone() });
            generation.backend.submit(request, sink).map_err(refused)?;
            generation.ids.push(id);
            generation.open += task.params.n as usize;
        }
        Ok(generation)
    }

    /// The next event, or none when every output has ended. An error ends the whole job; the server's end is one.
    pub async fn next(&mut self) -> Option<Result<TaskEvent, ApiError>> {
        if self.open == 0 {
            return None;
        }
        let event = tokio::select! {
            // First, since events may come faster than they are taken.
            biased;
            () = told(&mut self.closed) => None,
            event = self.events.recv() => Some(event),
        };
        Some(match event {
            Some(event) => self.judge(event),
            None => Err(self.given_up()),
        })
    }

    /// The next event if it is there already.
    pub fn ready(&mut self) -> Option<Result<TaskEvent, ApiError>> {
        if self.open == 0 {
            return None;
        }
        let event = self.events.try_recv().ok()?;
        Some(self.judge(Some(event)))
    }

    fn judge(&mut self, event: Option<TaskEvent>) -> Result<TaskEvent, ApiError> {
        let error = match event {
            Some((_, RequestEvent::Failed(reason))) => failure(reason),
            Some((_, RequestEvent::Finished { reason: FinishReason::Abort, .. })) => return Err(self.given_up()),
            Some(event) => {
                if matches!(event.1, RequestEvent::Finished { .. }) {
                    self.open -= 1;
                }
                return Ok(event);
            }
            None => ApiError::unavailable("engine_failed", "the engine dropped the request"),
        };
        self.abort();
        Err(error)
    }

    fn given_up(&mut self) -> ApiError {
        self.abort();
        ApiError::unavailable("aborted", "the request was aborted because the server stops")
    }

    fn abort(&mut self) {
        self.open = 0;
        for id in self.ids.drain(..) {
            self.backend.abort(id);
        }
    }
}

/// Returns when the server gives up what runs.
async fn told(closed: &mut watch::Receiver<bool>) {
    if closed.wait_for(|closed| *closed).await.is_err() {
        // Nobody is left who could tell.
        std::future::pending().await
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.open > 0 {
            self.abort();
        }
    }
}

/// Why the engine did not take a request.
fn refused(error: SubmitError) -> ApiError {
    let message = error.to_string();
    match error {
        SubmitError::Invalid { parameter, .. } => ApiError::invalid(parameter, message),
        SubmitError::QueueFull { .. } => ApiError::queue_full(message),
        SubmitError::ShuttingDown => ApiError::unavailable("shutting_down", message),
        SubmitError::Unhealthy(_) => ApiError::unavailable("engine_failed", message),
    }
}

/// Why the engine gave up a request.
fn failure(reason: RequestFailure) -> ApiError {
    let code = match reason {
        RequestFailure::Engine(_) => "engine_failed",
        RequestFailure::ShuttingDown => "shutting_down",
    };
    ApiError::unavailable(code, reason.to_string())
}

/// Sequences that a job occupies.
pub fn sequences(job: &Job) -> usize {
    let outputs = |params: &SamplingParams| params.n as usize;
    job.tasks.iter().map(|task| outputs(&task.params)).sum()
}

/// OpenAI's word for how an output ended.
pub fn finish_word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Abort => "abort",
    }
}
