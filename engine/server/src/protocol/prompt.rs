//! The prompt of a text completion: text, token ids, or a list of either.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::json;
use utoipa::openapi::{RefOr, Schema};

use super::object::from_json;

/// One prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// The `prompt` field: at least one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompts(pub Vec<Prompt>);

/// How `Prompts` looks in JSON.
pub fn prompts_schema() -> RefOr<Schema> {
    let id = json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
    from_json(json!({
        "description": "A text, a list of token ids, or a list of either.",
        "anyOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": id},
            {"type": "array", "minItems": 1, "items": {"type": "string"}},
            {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1, "items": id}},
        ],
    }))
}

const EXPECTED: &str = "a string, a list of token ids, or a list of either";

/// An element of the outer list.
enum Item {
    Id(u32),
    Prompt(Prompt),
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string, a token id or a list of token ids")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Item, E> {
        u32::try_from(id).map(Item::Id).map_err(|_| E::custom(format_args!("token id {id} is too large")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Prompt(Prompt::Text(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Item, E> {
        Ok(Item::Prompt(Prompt::Text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
        let mut tokens = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(1024));
        while let Some(token) = seq.next_element()? {
            tokens.push(token);
        }
        Ok(Item::Prompt(Prompt::Tokens(tokens)))
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(EXPECTED)
    }

    fn visit_str<E>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![Prompt::Text(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Prompts, A::Error> {
        let (mut ids, mut prompts) = (Vec::new(), Vec::new());
        while let Some(item) = seq.next_element()? {
            match item {
                Item::Id(id) => ids.push(id),
                Item::Prompt(prompt) => prompts.push(prompt),
            }
            if !ids.is_empty() && !prompts.is_empty() {
                return Err(A::Error::custom(format_args!(
                    "the list mixes token ids with prompts; expected {EXPECTED}"
                )));
            }
        }
        if !ids.is_empty() {
            prompts.push(Prompt::Tokens(ids));
        }
        Ok(Prompts(prompts))
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Prompt>, String> {
        serde_json::from_str::<Prompts>(text).map(|prompts| prompts.0).map_err(|error| error.to_string())
    }

    #[test]
    fn every_shape_is_read() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(read(r#""a\n""#).unwrap(), [text("a\n")]);
        assert_eq!(read(r#"["a","b"]"#).unwrap(), [text("a"), text("b")]);
        assert_eq!(read("[1,2]").unwrap(), [Prompt::Tokens(vec![1, 2])]);
        assert_eq!(read("[[1],[2,3]]").unwrap(), [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]);
        assert_eq!(read("[]").unwrap(), []);
    }

    #[test]
    fn mixed_and_foreign_shapes_are_refused() {
        assert!(read(r#"[1,"a"]"#).unwrap_err().contains("mixes token ids with prompts"));
        assert!(read("[4294967296]").unwrap_err().contains("too large"));
        for text in ["1", "{}", "[-1]", "[1.5]", "[[\"a\"]]", "[[[1]]]", "[null]", "true"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
