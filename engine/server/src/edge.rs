//! What happens around every route: the key, the request id, the count, the log line.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::ids;

/// Names a request in logs on both sides.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that a client may choose.
const LONGEST_ID: usize = 128;

/// Routes that answer without a key: probes and scrapers seldom have one.
const OPEN: [&str; 2] = ["/health", "/metrics"];

/// Checks the key, and gives the response the request's id: the client's, or a new one.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let uri = tracing::enabled!(tracing::Level::DEBUG).then(|| request.uri().clone());
    let open = OPEN.contains(&request.uri().path());
    let mut response = match app.keys.check(request.headers()) {
        Err(refused) if !open => refused.into_response(),
        _ => next.run(request).await,
    };
    app.answers.count(route.as_ref().map(MatchedPath::as_str), &method, response.status());
    if let Some(uri) = uri {
        tracing::debug!(%method, path = uri.path(), status = response.status().as_u16(), ?id, "request");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn request_id(headers: &HeaderMap) -> HeaderValue {
    let usable = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        !bytes.is_empty() && bytes.len() <= LONGEST_ID && bytes.iter().all(u8::is_ascii_graphic)
    };
    match headers.get(REQUEST_ID).filter(usable) {
        Some(value) => value.clone(),
        None => HeaderValue::try_from(ids::named("req")).unwrap_or(HeaderValue::from_static("req")),
    }
}

/// Names in the response what the request said in vain.
pub fn report_ignored(response: &mut Response, mut ignored: Vec<String>) {
    ignored.dedup();
    if ignored.is_empty() {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(header_text(&ignored)) {
        response.headers_mut().insert(HeaderName::from_static("archway-ignored"), value);
    }
}

/// The names with commas between them; bounded, and with other than visible ASCII characters escaped.
fn header_text(names: &[String]) -> String {
    const LONGEST: usize = 1024;
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let name: String = name.chars().flat_map(char::escape_default).collect();
        if text.len() + name.len() > LONGEST {
            text.push_str(&format!(", and {} more", names.len() - index));
            break;
        }
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_names_fit_a_header_whatever_they_are() {
        let text = header_text(&["user".to_owned(), "a\nb".to_owned(), "ü,".to_owned()]);
        assert_eq!(text, "user, a\\nb, \\u{fc},");
        let many: Vec<String> = (0..1000).map(|index| format!("messages[{index}].refusal")).collect();
        let text = header_text(&many);
        assert!(text.len() < 1100 && text.ends_with("more"), "{text}");
        assert!(HeaderValue::try_from(text).is_ok());
    }

    #[test]
    fn a_clients_id_is_kept_if_it_is_harmless() {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_static("abc-1"));
        assert_eq!(request_id(&headers), "abc-1");
        headers.insert(REQUEST_ID, HeaderValue::from_static("a b"));
        assert!(request_id(&headers).as_bytes().starts_with(b"req-"));
        headers.insert(REQUEST_ID, HeaderValue::try_from("x".repeat(129)).unwrap());
        assert!(request_id(&headers).as_bytes().starts_with(b"req-"));
    }
}
