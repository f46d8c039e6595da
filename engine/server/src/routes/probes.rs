//! What load balancers and scrapers ask.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::answer::internal;
use crate::app::{App, Health};
use crate::error::ApiError;
use crate::metrics::CONTENT_TYPE;
use crate::protocol::info::{HealthBody, VersionBody};

/// This server's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the server can serve.
#[utoipa::path(
    get,
    path = "/health",
    tag = "operation",
    security(()),
    responses(
        (status = 200, description = "Ready", body = HealthBody),
        (status = 503, description = "Loading, draining or failed; the body says which and why", body = HealthBody),
    )
)]
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let health = app.health();
    let status = if health == Health::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(HealthBody { status: health.word(), reason: health.reason() })).into_response()
}

/// The server's version.
#[utoipa::path(get, path = "/version", tag = "operation", responses((status = 200, description = "The version", body = VersionBody)))]
pub async fn version() -> Json<VersionBody> {
    Json(VersionBody { version: VERSION })
}

/// Metrics for Prometheus. Empty while the model loads.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operation",
    security(()),
    responses((status = 200, description = "Prometheus text format 0.0.4", body = String, content_type = "text/plain"))
)]
pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let text = match app.loaded() {
        Some(loaded) => loaded.metrics.render().map_err(|error| internal(&error))?,
        None => String::new(),
    };
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
