//! The OpenAPI document, made from the types that the routes read and write.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::protocol::common::{CommonFields, StreamOptions};
use crate::protocol::content::{ChatMessage, ContentPart};
use crate::protocol::known::{Allowed, KNOWN, Kind, Place};
use crate::routes::{chat, completions, info, models, probes, tokenize};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Archway",
        description = "OpenAI-compatible inference server. Every field of a request is honoured, or named in the \
                       response header `archway-ignored`, or refused by name with 400."
    ),
    paths(
        chat::create,
        completions::create,
        models::list,
        models::retrieve,
        tokenize::tokenize,
        tokenize::detokenize,
        probes::health,
        probes::version,
        probes::metrics,
        info::plan,
        info::server_info,
        info::model_info,
        info::loads,
    ),
    components(schemas(CommonFields, StreamOptions, ChatMessage, ContentPart))
)]
struct Document;

/// Request objects, where their fields stand, and whether they take in the common fields.
const REQUESTS: &[(&str, Option<Place>, bool)] = &[
    ("ChatCompletionRequest", Some(Place::Chat), true),
    ("CompletionRequest", Some(Place::Completion), true),
    ("ChatMessage", Some(Place::Message), false),
    ("StreamOptions", Some(Place::StreamOptions), false),
    ("ContentPart", None, false),
    ("TokenizeRequest", None, false),
    ("DetokenizeRequest", None, false),
];

/// Every route may also answer so.
const EVERYWHERE: &[(&str, &str)] = &[("401", "The API key is missing or wrong"), ("405", "Another method is needed")];

/// The document as a JSON value.
pub fn document() -> Value {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or(Value::Null);
    let common = document["components"]["schemas"]["CommonFields"]["properties"].clone();
    for &(name, place, takes_common) in REQUESTS {
        let schema = &mut document["components"]["schemas"][name];
        let Some(properties) = schema["properties"].as_object_mut() else { continue };
        if takes_common {
            properties.extend(common.as_object().cloned().unwrap_or_default());
        }
        if let Some(place) = place {
            properties.extend(known_properties(place));
        }
        // An explicit null means "not given", whatever its name.
        schema["additionalProperties"] = json!({"type": "null"});
    }
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.remove("CommonFields");
    }
    describe_paths(&mut document);
    document["components"]["securitySchemes"] = json!({"key": {"type": "http", "scheme": "bearer"}});
    document["security"] = json!([{}, {"key": []}]);
    document
}

/// Schemas of fields that are accepted without effect.
fn known_properties(place: Place) -> Map<String, Value> {
    let schema = |allowed: &Allowed, mut values: Vec<Value>| match allowed {
        Allowed::Any(Kind::Text) => json!({"type": ["string", "null"]}),
        Allowed::Any(Kind::Flag) => json!({"type": ["boolean", "null"]}),
        Allowed::Any(Kind::Map) => json!({"type": ["object", "null"]}),
        Allowed::Only(_) => {
            values.push(Value::Null);
            json!({"enum": values})
        }
    };
    KNOWN
        .iter()
        .filter(|known| known.applies_to(place))
        .map(|known| {
            let mut schema = schema(&known.allowed, known.values());
            schema["description"] = json!("Accepted, without effect, and named in `archway-ignored`.");
            (known.name.to_owned(), schema)
        })
        .collect()
}

fn describe_paths(document: &mut Value) {
    let error = json!({"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}});
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for operations in paths.values_mut().filter_map(Value::as_object_mut) {
        for operation in operations.values_mut() {
            for (status, description) in EVERYWHERE {
                operation["responses"][status] = json!({"description": description, "content": error});
            }
        }
    }
}

/// `/openapi.json`.
pub async fn serve() -> Response {
    static TEXT: OnceLock<Arc<[u8]>> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string().into_bytes().into());
    ([(header::CONTENT_TYPE, "application/json")], Bytes::from_owner(Arc::clone(text))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_list_every_field_and_close_the_rest() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        for &(name, ..) in REQUESTS {
            assert_eq!(schemas[name]["additionalProperties"]["type"], "null", "{name}");
        }
        let chat = &schemas["ChatCompletionRequest"];
        for field in ["model", "messages", "temperature", "stop", "user", "tools", "store"] {
            assert!(chat["properties"][field].is_object(), "{field}");
        }
        assert_eq!(chat["required"], json!(["model", "messages"]));
        assert!(schemas["CompletionRequest"]["properties"]["tools"].is_null());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        for part in text.split("\"$ref\":\"#").skip(1) {
            let pointer = part.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
