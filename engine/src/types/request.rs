//! A request as the engine sees it, and what it sends back.

use std::sync::Arc;

use super::{FinishReason, SamplingParams, TokenLogprobs, TokenOutput};

/// Names one request for its whole life, unique within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A validated request: token ids in, parameters complete.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: RequestId,
    /// At least one token, all below the vocabulary size.
    pub prompt: Arc<[u32]>,
    pub params: Arc<SamplingParams>,
    /// Requests of a lower value are admitted first; ties by arrival.
    pub priority: i32,
    /// Separates prefix-cache entries of different tenants; pages are shared only between equal salts.
    pub cache_salt: Option<Arc<str>>,
}

/// Token counts in OpenAI's sense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u32,
}

/// Why a request ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// A rank panicked, stalled or lost its device; the message names rank, site and step.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The server is draining and takes no new request.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// What the engine tells the owner of a request, in order. `index` counts the `n` outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestEvent {
    /// One entry per prompt token; the first token has no probability.
    PromptLogprobs(Vec<Option<TokenLogprobs>>),
    /// New tokens and the text that became final with them (may be empty while a character or a possible stop string is incomplete).
    Output { index: u32, tokens: Vec<TokenOutput>, text: String },
    /// The last event of one output.
    Finished { index: u32, reason: FinishReason, usage: Usage },
    /// The last event of the request.
    Failed(RequestFailure),
}

/// Receives the events of one request on the engine's thread, so it must not block.
pub trait EventSink: Send {
    /// Returns false when the receiver is gone; the engine then aborts the request.
    fn send(&self, event: RequestEvent) -> bool;
}
