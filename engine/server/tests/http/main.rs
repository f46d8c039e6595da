//! The server over loopback, with the mock engine.

mod chaos;
mod chat;
mod completions;
mod errors;
mod harness;
mod lifecycle;
mod operation;
mod patience;
mod tokens;
