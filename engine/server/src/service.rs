//! What a loaded model serves with.

use std::sync::Arc;

pub use crate::request::check_defaults;

use crate::backend::{Backend, PlanReport};
use crate::error::ApiError;
use crate::metrics::Histograms;
use crate::settings::Limits;
use crate::text::Codec;

use axum::http::StatusCode;
use engine::load::GenerationDefaults;

/// The model's names and sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCard {
    /// Names that a request may use; the first is the one in answers. Never empty.
    pub names: Vec<String>,
    /// Folder or file of the weights.
    pub path: String,
    pub tokenizer_path: String,
    /// Longest sequence in tokens, prompt and output together.
    pub context: u32,
    /// Sequences that run at once.
    pub slots: u32,
    /// Key-value pages, and token positions in one.
    pub pages: u32,
    pub page_size: u32,
    /// Ranks of tensor parallelism.
    pub tensor_parallel: u32,
}

/// A ready engine with its tokenizer and plan.
pub struct Service {
    pub model: ModelCard,
    pub backend: Arc<dyn Backend>,
    pub codec: Arc<dyn Codec>,
    pub plan: Arc<dyn PlanReport>,
    /// What the engine's observer measures.
    pub histograms: Arc<Histograms>,
    /// What the model's makers sample with; a request's own fields go before.
    pub defaults: GenerationDefaults,
}

impl Service {
    /// The name that answers carry.
    pub fn name(&self) -> &str {
        self.model.names.first().map_or("", String::as_str)
    }

    /// Sequences that may be inside at once: those that run, and those that wait.
    pub fn most_sequences(&self, limits: &Limits) -> usize {
        self.model.slots as usize + limits.queued as usize
    }

    /// 404 for a model that is not served here.
    pub fn require_model(&self, name: &str) -> Result<(), ApiError> {
        if self.model.names.iter().any(|served| served == name) {
            return Ok(());
        }
        let message = format!("the model `{name}` is not served here; this server has {}", self.model.names.join(", "));
        Err(ApiError { param: Some("model".to_owned()), ..ApiError::new(StatusCode::NOT_FOUND, message) }
            .with_code("model_not_found"))
    }
}
