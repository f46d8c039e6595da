//! Chat messages: text, or a list of text parts.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::json;
use utoipa::openapi::{RefOr, Schema};

use super::object::{Object, from_json, json_object};

json_object! {
    /// One turn of a conversation.
    pub struct ChatMessage {
        /// `system`, `developer` (read as `system`), `user` or `assistant`.
        #[schema(required, nullable = false, pattern = "^(system|developer|user|assistant)$")]
        role: String,
        #[schema(required, nullable = false, schema_with = content_schema)]
        content: Content,
        /// Name of the speaker, for templates that use it.
        name: String,
    }
}

json_object! {
    /// A piece of a message.
    pub struct ContentPart {
        /// `text` is the only kind that this server takes.
        #[schema(required, nullable = false, pattern = "^text$")]
        kind as "type": String,
        #[schema(required, nullable = false)]
        text: String,
    }
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    Parts(Vec<Object<ContentPart>>),
}

/// How `Content` looks in JSON.
fn content_schema() -> RefOr<Schema> {
    let part = json!({"$ref": "#/components/schemas/ContentPart"});
    from_json(json!({
        "description": "A text, a list of text parts, or one text part.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": part}, part],
    }))
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string or a list of text parts")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Content, E> {
        Ok(Content::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Content, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Content::Parts)
    }

    /// A single part without its list, as some clients send it.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content, A::Error> {
        let part = Object::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Content::Parts(vec![part]))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}
