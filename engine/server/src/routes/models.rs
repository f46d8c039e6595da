//! `/v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};

use crate::app::App;
use crate::error::{ApiError, ErrorBody};
use crate::protocol::models::{ModelBody, ModelList};

/// Lists the served names of the model.
#[utoipa::path(
    get,
    path = "/v1/models",
    tag = "models",
    responses(
        (status = 200, description = "The served names", body = ModelList),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn list(State(app): State<Arc<App>>) -> Result<Json<ModelList>, ApiError> {
    let names = &app.model()?.service.model.names;
    let data = names.iter().map(|name| model(&app, name)).collect::<Result<_, _>>()?;
    Ok(Json(ModelList { object: "list", data }))
}

/// Tells of one served name.
#[utoipa::path(
    get,
    path = "/v1/models/{model}",
    tag = "models",
    params(("model" = String, Path, description = "A served name")),
    responses(
        (status = 200, description = "The model", body = ModelBody),
        (status = 404, description = "No such model", body = ErrorBody),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn retrieve(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<ModelBody>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid("model", format!("`model` is not a name: {error}")))?;
    app.model()?.service.require_model(&name)?;
    model(&app, &name).map(Json)
}

fn model(app: &App, name: &str) -> Result<ModelBody, ApiError> {
    let card = &app.model()?.service.model;
    Ok(ModelBody {
        id: name.to_owned(),
        object: "model",
        created: app.started,
        owned_by: "archway",
        root: card.path.clone(),
        max_model_len: card.context,
    })
}
