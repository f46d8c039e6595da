//! The bodies of requests and responses, one file per endpoint.

mod brief;
pub mod chat;
pub mod common;
pub mod completion;
pub mod content;
pub mod info;
pub mod known;
pub mod logprobs;
pub mod models;
pub mod object;
pub mod prompt;
pub mod tokenize;
pub mod usage;
