//! What the operator decides about the server.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::Value;

/// Bounds on what clients may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body in bytes.
    pub body_bytes: usize,
    /// Sequences that may wait beside those that run; beyond it a request is refused with 429.
    pub queued: u32,
    /// Largest `n`.
    pub outputs: u32,
    /// Largest number of alternatives in log-probabilities.
    pub alternatives: u32,
    /// Most stop strings, and most stop tokens, of one request.
    pub stops: usize,
    /// Longest stop string in bytes. Every output keeps its own copy.
    pub stop_bytes: usize,
    /// Most log-probabilities of prompts in one answer, over all outputs. Each takes 60 bytes of it, and ten times that
    /// while it is made.
    pub prompt_logprobs: usize,
    /// Requests may name a priority.
    pub priorities: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            queued: 1024,
            outputs: 128,
            alternatives: 20,
            stops: 64,
            stop_bytes: 1024,
            prompt_logprobs: 2 << 20,
            priorities: true,
        }
    }
}

/// Settings of one server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub limits: Limits,
    /// Keys of which a client must present one; none means that no key is asked for.
    pub api_keys: Vec<String>,
    /// How long running requests may take to finish after the order to stop.
    pub shutdown_timeout: Duration,
    /// Silence on a stream after which a comment is sent, so that proxies keep it open.
    pub keep_alive: Duration,
    /// How long a client may take over the head of a request, over the next piece of its body, and over reading what is
    /// sent; and how long a connection may rest between two requests.
    pub patience: Duration,
    /// Most connections that are open at once; further ones wait until one ends.
    pub connections: usize,
    /// Every setting of the program with its value and origin, for `/server_info`.
    pub report: Value,
    /// Lines of the log that could not be written, counted by who writes it.
    pub log_lines_lost: Arc<AtomicU64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            api_keys: Vec::new(),
            shutdown_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            patience: Duration::from_secs(60),
            connections: usize::MAX,
            report: Value::Object(serde_json::Map::new()),
            log_lines_lost: Arc::default(),
        }
    }
}
