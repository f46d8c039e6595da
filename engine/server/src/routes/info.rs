//! What operators and routers ask about a server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use crate::app::{App, Loaded};
use crate::error::{ApiError, ErrorBody};
use crate::protocol::info::{Load, Loads, ModelInfo, ServerInfo};
use crate::routes::probes::VERSION;
use crate::time;

/// The plan that the engine serves with, and how often each of its paths ran.
#[utoipa::path(
    get,
    path = "/plan",
    tag = "operation",
    responses(
        (status = 200, description = "The plan", body = Object),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn plan(State(app): State<Arc<App>>) -> Result<Json<serde_json::Value>, ApiError> {
    Ok(Json(app.model()?.service.plan.document()))
}

/// Sizes, limits, and every setting with its origin.
#[utoipa::path(
    get,
    path = "/server_info",
    tag = "operation",
    responses(
        (status = 200, description = "The server", body = ServerInfo),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn server_info(State(app): State<Arc<App>>) -> Result<Json<ServerInfo>, ApiError> {
    let loaded = app.model()?;
    let model = &loaded.service.model;
    Ok(Json(ServerInfo {
        version: VERSION,
        model_path: model.path.clone(),
        served_model_name: loaded.service.name().to_owned(),
        tp_size: model.tensor_parallel,
        dp_size: 1,
        context_length: model.context,
        max_total_tokens: all_tokens(loaded),
        max_running_requests: model.slots,
        max_queued_requests: app.settings.limits.queued,
        startup_seconds: loaded.startup_seconds,
        settings: app.settings.report.clone(),
    }))
}

/// The model behind this server.
#[utoipa::path(
    get,
    path = "/model_info",
    tag = "operation",
    responses(
        (status = 200, description = "The model", body = ModelInfo),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn model_info(State(app): State<Arc<App>>) -> Result<Json<ModelInfo>, ApiError> {
    let service = &app.model()?.service;
    Ok(Json(ModelInfo {
        model_path: service.model.path.clone(),
        tokenizer_path: service.model.tokenizer_path.clone(),
        is_generation: true,
        vocabulary: service.codec.vocabulary(),
    }))
}

/// How busy the engine is.
#[utoipa::path(
    get,
    path = "/v1/loads",
    tag = "operation",
    responses(
        (status = 200, description = "The load", body = Loads),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn loads(State(app): State<Arc<App>>) -> Result<Json<Loads>, ApiError> {
    let loaded = app.model()?;
    let stats = loaded.service.backend.stats();
    let model = &loaded.service.model;
    let queries = stats.prefix_queries;
    let load = Load {
        dp_rank: 0,
        num_running_reqs: u64::from(stats.running),
        num_waiting_reqs: u64::from(stats.waiting),
        num_used_tokens: u64::from(stats.pages_used) * u64::from(model.page_size),
        max_total_num_tokens: all_tokens(loaded),
        max_running_requests: model.slots,
        token_usage: stats.cache_usage(),
        cache_hit_rate: if queries == 0 { 0.0 } else { stats.prefix_hits as f64 / queries as f64 },
    };
    Ok(Json(Loads { timestamp: time::rfc3339(crate::answer::now()), version: VERSION, loads: vec![load] }))
}

/// Tokens that the key-value cache holds.
fn all_tokens(loaded: &Loaded) -> u64 {
    let model = &loaded.service.model;
    u64::from(model.pages) * u64::from(model.page_size)
}
