//! Reading a request body into a typed request, or into an error that names the field.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::app::App;
use crate::error::ApiError;
use crate::values::require_few;
use crate::words::in_words;

/// Pauses of a client's full patience that a whole body may take.
const PAUSES: u32 = 10;
/// Largest bodies that have room at once.
const LARGEST_AT_ONCE: usize = 16;

/// The room of a body, given back when it is dropped: when what it asked for has become tokens.
pub type Held<'a> = Option<SemaphorePermit<'a>>;

/// Memory for bodies that are being read, and for requests that wait to be rendered or tokenised, over all connections: many
/// clients that each send a large one must not fill it.
pub struct BodyRoom {
    bytes: Semaphore,
    /// Of one body.
    limit: usize,
}

impl BodyRoom {
    pub fn new(limit: usize) -> Self {
        let bytes = Semaphore::new(limit.saturating_mul(LARGEST_AT_ONCE).min(Semaphore::MAX_PERMITS));
        Self { bytes, limit }
    }

    /// Room for one more piece, beside what the body has already.
    fn widen<'a>(&'a self, held: &mut Held<'a>, bytes: usize) -> Result<(), ApiError> {
        let more = u32::try_from(bytes).ok().and_then(|bytes| self.bytes.try_acquire_many(bytes).ok());
        let more = more.ok_or_else(|| {
            let message = "other requests' bodies take all the memory that this server has for them; try again later";
            ApiError::unavailable("bodies_full", message)
        })?;
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }
}

/// Reads a JSON body; its room is kept as long as what was read. Errors: one that is larger than the settings allow or has too
/// many values, that does not come, that has no room, or that is none.
pub async fn read<'a, T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    app: &'a App,
) -> Result<(T, Held<'a>), ApiError> {
    require_json(headers)?;
    let patience = app.settings.patience;
    let whole = timeout(patience * PAUSES, collect(body, &app.bodies, patience)).await;
    let (bytes, held) = whole.unwrap_or_else(|_| Err(too_slow(patience * PAUSES)))?;
    require_few(&bytes)?;
    Ok((parse(&bytes)?, held))
}

/// Only `application/json`: a web page can post any other type to a server on the same machine without being asked.
fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    let refused = |message: String| {
        Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).with_code("unsupported_media_type"))
    };
    // Unpacking would make a small body large.
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return refused("the body has a content encoding, and none is unpacked; send it plain".to_owned());
    }
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    if essence.is_empty() {
        return refused("the header Content-Type is missing; it must be `application/json`".to_owned());
    }
    refused(format!("the content type must be `application/json`, not `{essence}`"))
}

/// The body, and the room that it takes.
async fn collect(body: Body, room: &BodyRoom, patience: Duration) -> Result<(Vec<u8>, Held<'_>), ApiError> {
    let limit = room.limit;
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let (mut body, mut bytes, mut held) = (Limited::new(body, limit), Vec::new(), None);
    loop {
        match timeout(patience, body.frame()).await {
            Ok(None) => return Ok((bytes, held)),
            Ok(Some(Ok(frame))) => {
                let piece = frame.into_data().unwrap_or_default();
                room.widen(&mut held, piece.len())?;
                bytes.extend(piece);
            }
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(too_large(limit)),
            Ok(Some(Err(error))) => {
                let message = format!("the body ended early: {error}");
                return Err(ApiError::new(StatusCode::BAD_REQUEST, message).with_code("incomplete_body"));
            }
            Err(_) => return Err(too_slow(patience)),
        }
    }
}

fn too_slow(patience: Duration) -> ApiError {
    let message = format!("the body did not come within {} s", patience.as_secs_f64());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, message).with_code("incomplete_body")
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the body is larger than this server's limit of {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("request_too_large")
}

/// Parses JSON; the error names the path of the field at fault.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

/// Parses once more, slower, to learn where it fails.
fn explain<T: DeserializeOwned>(bytes: &[u8]) -> ApiError {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let error = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => error,
        Ok(_) => return not_json("there is text after the end of the JSON value"),
    };
    let path = error.path().to_string();
    let inner = error.into_inner();
    if !inner.is_data() {
        return not_json(&inner.to_string());
    }
    let reason = in_words(&inner.to_string());
    if path == "." {
        return ApiError::new(StatusCode::BAD_REQUEST, format!("the body is wrong: {reason}"))
            .with_code("invalid_body");
    }
    let message = format!("`{path}` is wrong: {reason}");
    ApiError::invalid(path, message)
}

fn not_json(reason: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {reason}")).with_code("invalid_json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::chat::ChatCompletionRequest;
    use crate::protocol::object::Object;
    use crate::settings::{Limits, Settings};
    use axum::http::HeaderValue;

    fn refuse(text: &str) -> ApiError {
        parse::<Object<ChatCompletionRequest>>(text.as_bytes()).unwrap_err()
    }

    #[tokio::test]
    async fn bodies_that_wait_cannot_take_all_memory() {
        let (room, patience) = (BodyRoom::new(10), Duration::from_secs(1));
        let body = || collect(Body::from("0123456789"), &room, patience);
        let mut inside = Vec::new();
        for _ in 0..LARGEST_AT_ONCE {
            inside.push(body().await.unwrap());
        }
        let refused = body().await.unwrap_err();
        assert_eq!((refused.status, refused.code), (StatusCode::SERVICE_UNAVAILABLE, Some("bodies_full")));
        inside.pop();
        assert_eq!(body().await.unwrap().0, b"0123456789");
    }

    /// Parsed is not gone: a request that waits for its turn takes its memory still.
    #[tokio::test]
    async fn what_was_read_keeps_its_room() {
        let limits = Limits { body_bytes: 9, ..Limits::default() };
        let app = App::new(Settings { limits, ..Settings::default() });
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let read = || read::<String>(&headers, Body::from("\"0123456\""), &app);
        let mut waiting = Vec::new();
        for _ in 0..LARGEST_AT_ONCE {
            waiting.push(read().await.unwrap());
        }
        assert_eq!(read().await.unwrap_err().code, Some("bodies_full"));
        waiting.pop();
        assert_eq!(read().await.unwrap().0, "0123456");
    }

    #[test]
    fn errors_name_the_field_and_the_reason() {
        let refused = refuse(r#"{"temperature":"hot"}"#);
        assert_eq!(refused.param.as_deref(), Some("temperature"));
        assert!(refused.message.starts_with("`temperature` is wrong: invalid type: string \"hot\", expected a number"));
        let refused = refuse(r#"{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}"#);
        assert_eq!(refused.param.as_deref(), Some("messages[0].content[0].text"));
        assert_eq!(refuse(r#"{"logit_bias":{"5":"a"}}"#).param.as_deref(), Some("logit_bias.5"));
        assert_eq!(refuse(r#"{"n":-1}"#).param.as_deref(), Some("n"));
    }

    #[test]
    fn what_is_no_json_says_so() {
        for text in ["", "{", "{\"a\":}", "nul", "{} x", "\u{0}"] {
            assert_eq!(refuse(text).code, Some("invalid_json"), "{text}");
        }
        assert_eq!(refuse("[]").code, Some("invalid_body"));
        let deep = "[".repeat(100_000);
        assert_eq!(refuse(&format!("{{\"zzz\":{deep}")).code, Some("invalid_json"));
    }
}
