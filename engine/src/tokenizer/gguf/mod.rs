//! The tokenizer inside a GGUF file.
//!
//! Rules: `llama-vocab.cpp` of llama.cpp, which the files are made for. "gpt2" is byte-level BPE, "llama" SentencePiece.

mod byte_level;
mod pre;
mod sentence_piece;

use std::sync::Arc;

use tokenizers::AddedToken;

use super::vocabulary::{Entry, Spelling, Vocabulary};
use super::{Frame, Tokenizer, TokenizerError, guard};
use crate::weights::{GgufWeights, WeightError};

/// Kinds of tokens, as the file numbers them. Others are ordinary.
mod kind {
    pub const UNKNOWN: i64 = 2;
    pub const CONTROL: i64 = 3;
    pub const USER_DEFINED: i64 = 4;
    pub const BYTE: i64 = 6;
}

/// What every kind of tokenizer needs from the file.
struct Parts<'a> {
    path: &'a str,
    weights: &'a GgufWeights,
    tokens: Vec<&'a str>,
    /// One per token.
    kinds: Vec<i64>,
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file; `None` if the file has none.
    pub fn from_gguf(weights: &GgufWeights) -> Result<Option<Self>, TokenizerError> {
        let path = weights.path();
        let Some(model) = weights.text("tokenizer.ggml.model").map_err(from_weights)?.filter(|name| *name != "none")
        else {
            return Ok(None);
        };
        let parts = Parts::read(weights)?;
        let (mut encoder, spelling, defaults) = match model {
            "gpt2" => byte_level::build(&parts)?,
            "llama" => sentence_piece::build(&parts)?,
            other => {
                let message = format!("metadata key `tokenizer.ggml.model` is \"{other}\"; gpt2 and llama are known");
                return Err(parts.fail(message));
            }
        };
        parts.add_tokens(&mut encoder)?;
        let vocabulary = Arc::new(Vocabulary::new(spelling, parts.entries()).map_err(|message| parts.fail(message))?);
        let bos = parts.id("bos_token_id")?.or(defaults.bos);
        let eos = parts.id("eos_token_id")?.or(defaults.eos);
        let frame = Frame {
            start: bos.filter(|_| parts.flag("add_bos_token").unwrap_or(defaults.bos_added)),
            end: eos.filter(|_| parts.flag("add_eos_token").unwrap_or(false)),
        };
        Ok(Some(Self { path: path.to_owned(), encoder, vocabulary, frame, bos, eos }))
    }
}

/// What a kind of tokenizer does when the file is silent.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults {
    bos: Option<u32>,
    eos: Option<u32>,
    bos_added: bool,
}

type Built = (tokenizers::Tokenizer, Spelling, Defaults);

fn from_weights(error: WeightError) -> TokenizerError {
    match error {
        WeightError::File { path, message } => TokenizerError { path, message },
        other => TokenizerError { path: String::new(), message: other.to_string() },
    }
}

impl<'a> Parts<'a> {
    fn read(weights: &'a GgufWeights) -> Result<Self, TokenizerError> {
        let path = weights.path();
        let fail = |message: String| TokenizerError { path: path.to_owned(), message };
        let tokens = weights.texts("tokenizer.ggml.tokens").map_err(from_weights)?;
        let tokens = tokens.ok_or_else(|| fail("metadata key `tokenizer.ggml.tokens` is missing".to_owned()))?;
        let kinds = weights.numbers("tokenizer.ggml.token_type").map_err(from_weights)?;
        let kinds =
            kinds.map_or_else(|| vec![1; tokens.len()], |kinds| kinds.iter().map(|kind| *kind as i64).collect());
        if kinds.len() != tokens.len() {
            let message = format!(
                "metadata key `tokenizer.ggml.token_type` has {} entries, but `tokenizer.ggml.tokens` has {}",
                kinds.len(),
                tokens.len()
            );
            return Err(fail(message));
        }
        Ok(Self { path, weights, tokens, kinds })
    }

    fn fail(&self, message: String) -> TokenizerError {
        TokenizerError { path: self.path.to_owned(), message }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.weights.metadata().ok()?.get(&format!("tokenizer.ggml.{key}"))?.as_bool()
    }

    /// A token id of the metadata, which must exist.
    fn id(&self, key: &str) -> Result<Option<u32>, TokenizerError> {
        let key = format!("tokenizer.ggml.{key}");
        let metadata = self.weights.metadata().map_err(from_weights)?;
        let Some(value) = metadata.get(&key) else { return Ok(None) };
        let id = value.as_u64().filter(|id| *id < self.tokens.len() as u64).and_then(|id| u32::try_from(id).ok());
        match id {
            Some(id) => Ok(Some(id)),
            None => {
                Err(self.fail(format!("metadata key `{key}` is {value}, but there are {} tokens", self.tokens.len())))
            }
        }
    }

    /// Tokens by id, an ordinal that fits because a file of 2^32 tokens would be larger than any.
    fn numbered(&self) -> impl Iterator<Item = (u32, &'a str, i64)> {
        let ids = 0_u32..;
        ids.zip(self.tokens.iter().zip(&self.kinds)).map(|(id, (text, kind))| (id, *text, *kind))
    }

    /// Text to id; the first of two equal tokens counts.
    fn ids(&self) -> tokenizers::models::bpe::Vocab {
        let mut ids = tokenizers::models::bpe::Vocab::default();
        for (id, text, _) in self.numbered() {
            ids.entry(text.to_owned()).or_insert(id);
        }
        ids
    }

    /// Makes control and user-defined tokens match as a whole, before anything else.
    fn add_tokens(&self, encoder: &mut tokenizers::Tokenizer) -> Result<(), TokenizerError> {
        let added = |wanted: fn(i64) -> bool, special: bool| {
            let tokens = self.numbered().filter(move |(_, text, kind)| wanted(*kind) && !text.is_empty());
            tokens.map(move |(_, text, _)| AddedToken::from(text, special).normalized(false)).collect::<Vec<_>>()
        };
        let special = added(|kind| kind == kind::CONTROL || kind == kind::UNKNOWN, true);
        let user_defined = added(|kind| kind == kind::USER_DEFINED, false);
        guard(self.path, "adding special tokens", || {
            encoder.add_special_tokens(special)?;
            encoder.add_tokens(user_defined)
        })?;
        Ok(())
    }

    fn entries(&self) -> Vec<Entry<'a>> {
        let entry = |(id, text, kind): (u32, &'a str, i64)| Entry {
            id: id as usize,
            text,
            literal: matches!(kind, kind::UNKNOWN | kind::CONTROL | kind::USER_DEFINED),
            special: matches!(kind, kind::UNKNOWN | kind::CONTROL),
        };
        self.numbered().map(entry).collect()
    }
}
