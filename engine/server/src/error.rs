//! Errors in OpenAI's nested form: `{"error": {"message", "type", "param", "code"}}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds after which a refused client should try again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Longest message and longest path in an answer, in characters: both repeat what the client sent.
const LONGEST_MESSAGE: usize = 2000;
const LONGEST_PARAM: usize = 200;

/// What went wrong with one request, as the client sees it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    /// The request field at fault, as a path: `messages[0].content`.
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

/// Body of every response that is not a success.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    #[schema(inline)]
    error: ErrorDetail,
}

#[derive(Serialize, ToSchema)]
struct ErrorDetail {
    /// What is wrong, where, and what to do.
    message: String,
    /// Class of the error, e.g. `invalid_request_error`.
    #[serde(rename = "type")]
    kind: String,
    /// The request field at fault.
    #[schema(required)]
    param: Option<String>,
    /// Machine-readable reason.
    #[schema(required)]
    code: Option<String>,
}

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// 400 for a request that names a field wrongly or gives it a wrong value.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), code: Some("invalid_value"), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// 400 for a field whose effect this server does not offer.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::invalid(param, message) }
    }

    pub fn missing(param: &str) -> Self {
        let message = format!("the field `{param}` is required");
        Self { code: Some("missing_required_parameter"), ..Self::invalid(param, message) }
    }

    /// 429: the queue is full.
    pub fn queue_full(message: impl Into<String>) -> Self {
        Self { code: Some("queue_full"), ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// 503 while the server loads, drains or has failed.
    pub fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Some(code), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub fn body(&self) -> ErrorBody {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        ErrorBody {
            error: ErrorDetail {
                message: shortened(&self.message, LONGEST_MESSAGE),
                kind: kind.to_owned(),
                param: self.param.as_deref().map(|param| shortened(param, LONGEST_PARAM)),
                code: self.code.map(str::to_owned),
            },
        }
    }
}

/// The text, or its beginning and its end with how much is left out between them.
fn shortened(text: &str, longest: usize) -> String {
    let places = || text.char_indices().map(|(place, _)| place);
    let half = longest / 2;
    let (Some(begin), Some(end)) = (places().nth(half), places().rev().nth(half - 1)) else { return text.to_owned() };
    if places().nth(longest).is_none() {
        return text.to_owned();
    }
    format!("{} … {} bytes left out … {}", &text[..begin], end - begin, &text[end..])
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The rest of the body is not read, so the connection cannot be used again.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_comes_back_in_bounds() {
        assert_eq!(shortened("ü".repeat(10).as_str(), 10), "ü".repeat(10));
        assert_eq!(shortened("abcdefghijk", 4), "ab … 7 bytes left out … jk");
        assert_eq!(shortened("", 4), "");
        let name = "ü".repeat(5_000_000);
        let body = serde_json::to_string(&ApiError::invalid(&name, format!("`{name}` is wrong")).body()).unwrap();
        assert!(body.len() < 6000 && body.contains("is wrong") && body.contains("left out"), "{}", body.len());
    }
}
