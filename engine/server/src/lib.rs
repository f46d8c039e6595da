//! The HTTP face of the engine: OpenAI-compatible routes, streams, metrics and errors.
//!
//! The only crate that knows HTTP. It sees an engine through `backend::Backend` and a tokenizer through `text::Codec`.
//!
//! Walk of a request: `connections` → `edge` (key, request id) → `routes` → `body` (JSON into a typed `protocol` object) → `request`
//! (checks, template, tokens) → `admission` → `generation` (events from the engine) → `answer` or `stream`.

pub mod admission;
mod alternatives;
mod answer;
pub mod app;
mod auth;
pub mod backend;
mod body;
mod collect;
mod connections;
mod edge;
pub mod error;
mod generation;
mod ids;
pub mod metrics;
pub mod mock;
pub mod openapi;
pub mod protocol;
mod request;
mod routes;
mod serve;
pub mod service;
pub mod settings;
pub mod similar;
mod stream;
pub mod text;
mod time;
mod values;
pub mod words;

pub use routes::router;
pub use serve::serve;
