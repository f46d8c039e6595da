//! From files to a model: configuration, weights, tokenizer and defaults of a checkpoint, whatever its layout.

mod error;
mod hugging_face;
mod keys;

pub use error::{ConfigError, LoadError};
pub use hugging_face::parse_config;
