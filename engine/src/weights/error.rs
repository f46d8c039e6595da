//! Why a tensor cannot be had.

use super::WeightType;

/// Why a tensor cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The checkpoint has no such tensor; `near` are the most similar names.
    #[error("{path}: tensor `{name}` is missing{}", near_text(.near))]
    Missing { path: String, name: String, near: Vec<String> },
    #[error("{path}: tensor `{name}` has shape {actual:?}, the model needs {expected:?}")]
    Shape { path: String, name: String, actual: Vec<usize>, expected: Vec<usize> },
    #[error("tensor `{name}` has type {actual}, which {needed_for} cannot use")]
    Type { name: String, actual: WeightType, needed_for: &'static str },
    /// The file itself is damaged; says what was read where.
    #[error("{path}: {message}")]
    File { path: String, message: String },
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; the file has {}", near.join(", ")) }
}
