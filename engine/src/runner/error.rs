//! Why the engine does not start, or does not take a request.

/// Why a request was not taken. Nothing was sent to its sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A field has a value that the engine cannot serve; `parameter` is its name in `Request` or `SamplingParams`.
    #[error("`{parameter}` {message}")]
    Invalid { parameter: &'static str, message: String },
    /// Try again later: that many requests, or tokens, wait already.
    #[error("the queue is full: {waiting} {what} wait and the limit is {limit}")]
    QueueFull { what: &'static str, waiting: u64, limit: u64 },
    #[error("the server is shutting down")]
    ShuttingDown,
    /// An earlier step failed for good.
    #[error("the engine failed: {0}")]
    Unhealthy(String),
}

/// Why the engine cannot start on an executor.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A capacity with which no request could ever run.
    #[error("the executor's capacity cannot serve: {0}")]
    Capacity(String),
    #[error("the engine's thread cannot start: {0}")]
    Thread(std::io::Error),
}

/// Whether the engine takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    Draining,
    /// Drained: the thread has ended.
    Stopped,
    /// A step failed for good; the message names rank, site and step where known.
    Failed(String),
}
