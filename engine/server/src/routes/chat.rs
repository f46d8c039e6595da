//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::app::App;
use crate::collect::{Totals, collect};
use crate::edge::report_ignored;
use crate::error::{ApiError, ErrorBody};
use crate::generation::{Generation, sequences};
use crate::protocol::chat::{ChatCompletion, ChatCompletionChunk, ChatCompletionRequest};
use crate::protocol::object::Object;
use crate::request::chat_job;
use crate::stream::{ChatStream, respond};
use crate::{answer, body};

/// Answers a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "generation",
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, description = "The answer, or its chunks as server-sent events", content(
            (ChatCompletion = "application/json"),
            (ChatCompletionChunk = "text/event-stream"),
        )),
        (status = 400, description = "A field is wrong, unknown or not supported", body = ErrorBody),
        (status = 404, description = "No such model", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The body is not JSON", body = ErrorBody),
        (status = 429, description = "The queue is full", body = ErrorBody),
        (status = 503, description = "The server loads, drains or has failed", body = ErrorBody),
    )
)]
pub async fn create(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let limits = &app.settings.limits;
    let (request, room) = body::read::<Object<ChatCompletionRequest>>(&headers, body, &app).await?;
    let loaded = app.open()?;
    let mut job = chat_job(request, &loaded.service, limits).await?;
    let permit = app.admission.enter(sequences(&job.job), app.most_sequences(loaded))?;
    drop(room);
    let totals = Totals::new(&job.job, &loaded.service);
    let generation = Generation::start(&job.job, &loaded.service, permit)?;
    let ignored = std::mem::take(&mut job.job.ignored);
    let mut response = match job.job.stream {
        Some(report) => {
            let writer = ChatStream::new(&job, report, totals, Arc::clone(&loaded.service));
            respond(generation, writer, app.settings.keep_alive)
        }
        None => {
            let (tasks, usage) = collect(&job.job, totals, generation).await?;
            answer::chat(&job, tasks, usage, &loaded.service)
        }
    };
    report_ignored(&mut response, ignored);
    Ok(response)
}
