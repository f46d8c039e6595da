//! Why a model cannot be opened.

use crate::tokenizer::{TemplateError, TokenizerError};
use crate::weights::WeightError;

/// A configuration key that is missing, has the wrong type, is out of bounds or contradicts another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: key `{key}` {message}")]
pub struct ConfigError {
    pub path: String,
    /// Dotted from the top of the file, e.g. `text_config.rope_scaling.factor`.
    pub key: String,
    /// Continues the sentence "key `x` ...".
    pub message: String,
}

/// Why a model cannot be opened. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{path}: cannot be read: {cause}")]
    Read { path: String, cause: std::io::Error },
    #[error("{path}: {message}")]
    File { path: String, message: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Weights(#[from] WeightError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
}
