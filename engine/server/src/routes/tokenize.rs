//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use engine::tokenizer::Framing;

use crate::app::App;
use crate::body;
use crate::edge::report_ignored;
use crate::error::{ApiError, ErrorBody};
use crate::protocol::object::{Extras, Fields, Object};
use crate::protocol::tokenize::{DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse};
use crate::request::{conversation, encode, framing, render, require_vocabulary};
use crate::service::Service;
use crate::similar;

/// Turns a text or a conversation into token ids.
#[utoipa::path(
    post,
    path = "/tokenize",
    tag = "tokens",
    request_body = TokenizeRequest,
    responses(
        (status = 200, description = "The tokens", body = TokenizeResponse),
        (status = 400, description = "A field is wrong or unknown", body = ErrorBody),
        (status = 404, description = "No such model", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The body is not JSON", body = ErrorBody),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn tokenize(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let (request, _room) = body::read::<Object<TokenizeRequest>>(&headers, body, &app).await?;
    let Object { fields, extras } = request;
    let service = &app.model()?.service;
    let mut ignored = own_fields::<TokenizeRequest>(extras)?;
    served(fields.model.as_deref(), service)?;
    let names = fields.return_token_strs.unwrap_or(false);
    let (text, framing, param) = text(fields, service, &mut ignored).await?;
    let tokens = encode(service, text, framing, param).await?;
    let token_strs = names.then(|| tokens.iter().map(|&token| service.codec.token_name(token)).collect());
    let max_model_len = service.model.context;
    let mut response =
        Json(TokenizeResponse { count: tokens.len(), max_model_len, tokens, token_strs }).into_response();
    report_ignored(&mut response, ignored);
    Ok(response)
}

/// The text to tokenise, whether special tokens go around it, and the field that it came from.
async fn text(
    fields: TokenizeRequest,
    service: &Service,
    ignored: &mut Vec<String>,
) -> Result<(String, Framing, &'static str), ApiError> {
    match (fields.prompt, fields.messages) {
        (Some(prompt), None) => Ok((prompt, framing(fields.add_special_tokens, Framing::Added), "prompt")),
        (None, Some(messages)) => {
            let generation = fields.add_generation_prompt;
            let chat = conversation(&messages, generation, fields.chat_template_kwargs, ignored)?;
            let text = render(service, chat).await?;
            Ok((text, framing(fields.add_special_tokens, Framing::Omitted), "messages"))
        }
        (Some(_), Some(_)) => Err(ApiError::invalid("prompt", "give either `prompt` or `messages`, not both")),
        (None, None) => Err(ApiError::missing("prompt")),
    }
}

/// Turns token ids into text.
#[utoipa::path(
    post,
    path = "/detokenize",
    tag = "tokens",
    request_body = DetokenizeRequest,
    responses(
        (status = 200, description = "The text", body = DetokenizeResponse),
        (status = 400, description = "A field is wrong or unknown", body = ErrorBody),
        (status = 404, description = "No such model", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The body is not JSON", body = ErrorBody),
        (status = 503, description = "The server loads or has failed", body = ErrorBody),
    )
)]
pub async fn detokenize(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let (request, _room) = body::read::<Object<DetokenizeRequest>>(&headers, body, &app).await?;
    let Object { fields, extras } = request;
    let service = &app.model()?.service;
    let ignored = own_fields::<DetokenizeRequest>(extras)?;
    served(fields.model.as_deref(), service)?;
    let tokens = fields.tokens.ok_or_else(|| ApiError::missing("tokens"))?;
    let vocabulary = service.codec.vocabulary();
    for (index, &token) in tokens.iter().enumerate() {
        if token >= vocabulary {
            require_vocabulary(&format!("tokens[{index}]"), token, vocabulary)?;
        }
    }
    let prompt = service.codec.decode(&tokens).map_err(|message| ApiError::invalid("tokens", message))?;
    let mut response = Json(DetokenizeResponse { prompt }).into_response();
    report_ignored(&mut response, ignored);
    Ok(response)
}

fn served(model: Option<&str>, service: &Service) -> Result<(), ApiError> {
    model.map_or(Ok(()), |name| service.require_model(name))
}

/// These routes take their own fields and nothing else.
fn own_fields<T: Fields>(extras: Extras) -> Result<Vec<String>, ApiError> {
    let Some((name, _)) = extras.other.first() else { return Ok(extras.nulls) };
    let hint = similar::nearest(name, T::names()).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    Err(ApiError::invalid(name, format!("unknown field `{name}`{hint}")).with_code("unknown_parameter"))
}
