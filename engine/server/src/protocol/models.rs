//! Bodies of `/v1/models`.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    #[schema(value_type = String, pattern = "^list$")]
    pub object: &'static str,
    pub data: Vec<ModelBody>,
}

/// A served model name.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelBody {
    pub id: String,
    #[schema(value_type = String, pattern = "^model$")]
    pub object: &'static str,
    /// When this server started, in seconds since 1970.
    pub created: u64,
    pub owned_by: &'static str,
    /// The folder or file that the weights came from.
    pub root: String,
    /// Longest sequence, prompt and output together.
    pub max_model_len: u32,
}
