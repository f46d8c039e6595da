//! The engine's thread and the handle to it: joins scheduler, executor and detokeniser.

mod config;
mod deliver;
mod engine;
mod error;
mod observer;
mod request;
mod shared;
mod stats;
mod step;
mod text;
mod tokenizer_text;
mod validate;
mod worker;

#[cfg(test)]
mod tests;

pub use config::EngineConfig;
pub use engine::Engine;
pub use error::{Health, StartError, SubmitError};
pub use observer::{NoObserver, Observation, Observer, Outcome, OutputTimes};
pub use stats::EngineStats;
pub use text::{NoText, TextDecoder, TextPipeline};
pub use tokenizer_text::TokenizerText;
