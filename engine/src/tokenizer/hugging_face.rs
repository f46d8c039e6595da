//! `tokenizer.json`, with the keys of `tokenizer_config.json` that bear on it.

use std::sync::Arc;

use serde_json::Value;

use super::vocabulary::{Entry, Spelling, Vocabulary};
use super::{Frame, Tokenizer, TokenizerError, growth, guard};
use crate::files::read_json;

/// What `tokenizer_config.json` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerSettings {
    /// Text of the token that begins a sequence, and of the one that ends it.
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
    /// Put the beginning of sequence before a text even if `tokenizer.json` does not.
    pub bos_added: bool,
    /// Chat templates by name; the usual one is "default".
    pub chat_templates: Vec<(String, String)>,
}

impl TokenizerSettings {
    /// Reads the text of a `tokenizer_config.json`; `path` is for messages.
    pub fn parse(path: &str, text: &str) -> Result<Self, TokenizerError> {
        let fail = |message: String| TokenizerError { path: path.to_owned(), message };
        let root: Value = read_json(text.as_bytes()).map_err(|error| fail(format!("is not valid JSON: {error}")))?;
        if !root.is_object() {
            return Err(fail("must hold a JSON object".to_owned()));
        }
        // A token is written as its text or as an object that holds it.
        let token = |key: &str| match &root[key] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            other => match other["content"].as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(fail(format!("key `{key}` must be a string or an object with `content`"))),
            },
        };
        Ok(Self {
            bos_token: token("bos_token")?,
            eos_token: token("eos_token")?,
            bos_added: root["add_bos_token"].as_bool().unwrap_or(false),
            chat_templates: chat_templates(&root["chat_template"]).map_err(fail)?,
        })
    }
}

/// One template, or a list of named ones.
fn chat_templates(value: &Value) -> Result<Vec<(String, String)>, String> {
    let named = |item: &Value| Some((item["name"].as_str()?.to_owned(), item["template"].as_str()?.to_owned()));
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![("default".to_owned(), text.clone())]),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                named(item).ok_or("key `chat_template` must list objects with `name` and `template`".to_owned())
            })
            .collect(),
        _ => Err("key `chat_template` must be a string or a list".to_owned()),
    }
}

impl Tokenizer {
    /// Reads the content of a `tokenizer.json`; `path` is for messages.
    pub fn from_json(path: &str, json: &[u8], settings: &TokenizerSettings) -> Result<Self, TokenizerError> {
        let fail = |message: String| TokenizerError { path: path.to_owned(), message };
        let encoder = guard(path, "is not a usable tokenizer", || {
            let mut encoder: tokenizers::Tokenizer = read_json(json)?;
            // Limits for training batches; a server must see the whole prompt.
            encoder.with_truncation(None)?.with_padding(None);
            Ok(encoder)
        })?;
        let part = |part: serde_json::Result<Value>| part.map_err(|error| fail(format!("cannot be written: {error}")));
        let normalizer = part(serde_json::to_value(encoder.get_normalizer()))?;
        growth::check(&normalizer, &part(serde_json::to_value(encoder.get_post_processor()))?).map_err(fail)?;
        let vocabulary = vocabulary(&encoder).map_err(fail)?;
        let id = |text: &Option<String>| text.as_ref().and_then(|text| encoder.token_to_id(text));
        let (bos, eos) = (id(&settings.bos_token), id(&settings.eos_token));
        let frame = Frame { start: bos.filter(|_| settings.bos_added), end: None };
        Ok(Self { path: path.to_owned(), vocabulary: Arc::new(vocabulary), frame, bos, eos, encoder })
    }
}

fn vocabulary(encoder: &tokenizers::Tokenizer) -> Result<Vocabulary, String> {
    let Some(decoder) = encoder.get_decoder() else {
        return Err("key `decoder` is missing; it says how tokens spell text".to_owned());
    };
    let json = serde_json::to_value(decoder).map_err(|error| format!("key `decoder`: {error}"))?;
    let spelling = spelling(&json)?;
    let own = encoder.get_vocab(false);
    let added = encoder.get_added_tokens_decoder();
    let mut entries: Vec<Entry> = Vec::with_capacity(own.len() + added.len());
    for (text, id) in &own {
        entries.push(Entry { id: *id as usize, text, literal: false, special: false });
    }
    // Added tokens of the same id come later and replace the vocabulary's.
    for (id, token) in &added {
        entries.push(Entry { id: *id as usize, text: &token.content, literal: true, special: token.special });
    }
    Vocabulary::new(spelling, entries)
}

/// How a decoder, or a chain of them, writes spaces and bytes.
fn spelling(decoder: &Value) -> Result<Spelling, String> {
    let steps: Vec<&Value> = match decoder["decoders"].as_array() {
        Some(steps) if decoder["type"] == "Sequence" => steps.iter().collect(),
        _ => vec![decoder],
    };
    let mut spelling = None;
    for step in steps {
        let kind = step["type"].as_str().unwrap_or("without a type");
        spelling = match (kind, spelling) {
            ("ByteLevel", None) => Some(Spelling::ByteLevel),
            ("Metaspace", None) if step["replacement"] == "▁" => {
                Some(Spelling::SentencePiece { first_space_dropped: step["prepend_scheme"] != "never" })
            }
            ("Replace", None) if step["pattern"]["String"] == "▁" && step["content"] == " " => {
                Some(Spelling::SentencePiece { first_space_dropped: false })
            }
            ("Strip", Some(Spelling::SentencePiece { .. })) if step["content"] == " " && step["stop"] == 0 => {
                Some(Spelling::SentencePiece { first_space_dropped: step["start"] == 1 })
            }
            // What these do is done for every vocabulary.
            ("ByteFallback" | "Fuse", spelling) => spelling,
            (kind, _) => return Err(format!("key `decoder` has the step {kind}, {UNKNOWN_STEP}")),
        };
    }
    spelling.ok_or_else(|| format!("key `decoder` has no step that spells text, {UNKNOWN_STEP}"))
}

const UNKNOWN_STEP: &str = "which is not understood; ByteLevel, Metaspace and SentencePiece's Replace are";
