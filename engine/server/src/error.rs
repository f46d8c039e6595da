//! Errors in OpenAI's nested form: `{"error": {"message", "type", "param", "code"}}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds after which a refused client should try again.
const RETRY_AFTER_SECONDS: u32 = 1;

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
                message: self.message.clone(),
                kind: kind.to_owned(),
                param: self.param.clone(),
                code: self.code.map(str::to_owned),
            },
        }
    }
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
            StatusCode::PAYLOAD_TOO_LARGE => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
