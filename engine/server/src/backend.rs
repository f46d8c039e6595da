//! What the server needs of an engine. Integers go in, events come out; how they are made is not its business.

use engine::runner::{EngineStats, Health, SubmitError};
use engine::types::{EventSink, Request, RequestId};
use serde::Serialize;
use utoipa::ToSchema;

/// A running engine. Every call returns at once; none may block.
pub trait Backend: Send + Sync + 'static {
    /// Queues a request; its events go to `sink` until the last one or until `sink` says that nobody listens.
    fn submit(&self, request: Request, sink: Box<dyn EventSink>) -> Result<(), SubmitError>;

    /// Ends a request. Unknown and finished ones are not an error: an abort may cross the last event.
    fn abort(&self, id: RequestId);

    fn stats(&self) -> EngineStats;

    fn health(&self) -> Health;
}

/// How often one kind of collective ran. The words are those of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CollectiveCalls {
    pub operation: String,
    pub site: String,
    pub phase: String,
    pub algorithm: String,
    pub fusion: String,
    /// Upper bound of the message size's power-of-two bucket, e.g. `64KiB`.
    pub size_bucket: String,
    pub calls: u64,
}

/// One collective for which the plan had to leave its first choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFallback {
    pub operation: String,
    pub site: String,
    pub phase: String,
    pub algorithm: String,
    pub reason: String,
}

/// The plan that the engine serves with, and what ran of it.
pub trait PlanReport: Send + Sync + 'static {
    /// Body of `GET /plan`, call counters included.
    fn document(&self) -> serde_json::Value;

    fn collective_calls(&self) -> Vec<CollectiveCalls>;

    fn fallbacks(&self) -> Vec<PlanFallback>;
}

impl Backend for engine::runner::Engine {
    fn submit(&self, request: Request, sink: Box<dyn EventSink>) -> Result<(), SubmitError> {
        Self::submit(self, request, sink)
    }

    fn abort(&self, id: RequestId) {
        Self::abort(self, id);
    }

    fn stats(&self) -> EngineStats {
        Self::stats(self)
    }

    fn health(&self) -> Health {
        Self::health(self)
    }
}
