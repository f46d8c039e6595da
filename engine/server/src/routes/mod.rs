//! The routes, one file per group.

pub mod chat;
pub mod completions;
pub mod info;
pub mod models;
pub mod probes;
pub mod tokenize;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::app::App;
use crate::edge;
use crate::error::ApiError;
use crate::openapi;
use crate::similar;

/// Every path, for the hint of a 404.
const PATHS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/loads",
    "/tokenize",
    "/detokenize",
    "/health",
    "/version",
    "/metrics",
    "/plan",
    "/server_info",
    "/get_server_info",
    "/model_info",
    "/get_model_info",
    "/openapi.json",
];

/// The whole service.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/completions", post(completions::create))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::retrieve))
        .route("/v1/loads", get(info::loads))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/health", get(probes::health))
        .route("/version", get(probes::version))
        .route("/metrics", get(probes::metrics))
        .route("/plan", get(info::plan))
        .route("/server_info", get(info::server_info))
        .route("/get_server_info", get(info::server_info))
        .route("/model_info", get(info::model_info))
        .route("/get_model_info", get(info::model_info))
        .route("/openapi.json", get(openapi::serve))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        // Bodies are read with the operator's limit, by `body::read`.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&app), edge::guard))
        .with_state(app)
}

async fn not_found(uri: Uri) -> ApiError {
    let path = uri.path();
    let hint =
        similar::nearest(path, PATHS.iter().copied()).map_or(String::new(), |near| format!("; did you mean {near}?"));
    ApiError::new(StatusCode::NOT_FOUND, format!("there is nothing at {path}{hint}")).with_code("unknown_path")
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}; the Allow header says what it takes", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).with_code("method_not_allowed")
}
