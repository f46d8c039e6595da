//! Bodies of the routes that tell of the server itself.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct VersionBody {
    pub version: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct HealthBody {
    /// `ok`, `loading`, `draining` or `failed`.
    pub status: &'static str,
    #[schema(required)]
    pub reason: Option<String>,
}

/// What routers and operators ask for.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerInfo {
    pub version: &'static str,
    pub model_path: String,
    pub served_model_name: String,
    pub tp_size: u32,
    pub dp_size: u32,
    pub context_length: u32,
    /// Tokens that the key-value cache holds.
    pub max_total_tokens: u64,
    pub max_running_requests: u32,
    pub max_queued_requests: u32,
    /// Seconds from start to ready.
    pub startup_seconds: f64,
    /// Every setting with its value and who set it.
    #[schema(value_type = Object)]
    pub settings: serde_json::Value,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ModelInfo {
    pub model_path: String,
    pub tokenizer_path: String,
    pub is_generation: bool,
    pub vocabulary: u32,
}

/// Load of the engine behind this server, in the form that routers read.
#[derive(Debug, Serialize, ToSchema)]
pub struct Loads {
    /// When this was written, in RFC 3339 form.
    pub timestamp: String,
    #[schema(value_type = String)]
    pub version: &'static str,
    /// One entry: this server is one data-parallel rank.
    pub loads: Vec<Load>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Load {
    pub dp_rank: u32,
    pub num_running_reqs: u64,
    pub num_waiting_reqs: u64,
    /// Tokens in key-value pages that a sequence holds.
    pub num_used_tokens: u64,
    pub max_total_num_tokens: u64,
    pub max_running_requests: u32,
    /// Share of the key-value pages in use.
    pub token_usage: f64,
    /// Share of prompt tokens found in the prefix cache since start.
    pub cache_hit_rate: f64,
}
