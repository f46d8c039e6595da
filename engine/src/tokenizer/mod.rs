//! Text to tokens and back.

mod charsmap;
mod error;
mod gguf;
mod growth;
mod hugging_face;
mod stop;
mod stream;
mod template;
mod vocabulary;

use std::sync::Arc;

pub use error::TokenizerError;
pub use hugging_face::TokenizerSettings;
pub use stop::{StopMatcher, Stopped};
pub use stream::StreamDecoder;
pub use template::{ChatInput, ChatTemplate, LONGEST_TEXT, MOST_STEPS, TemplateError, TemplateSource};

use error::guard;
use vocabulary::{Spelling, Vocabulary};

/// Whether [`Tokenizer::encode`] puts around a text what the model expects there, usually a beginning of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// For plain texts. What is there already is not added again.
    Added,
    /// For rendered chat templates, which bring their own.
    Omitted,
}

/// What becomes of special tokens when tokens are turned into text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Kept,
    Skipped,
}

/// Tokens that are put around a text on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Frame {
    start: Option<u32>,
    end: Option<u32>,
}

/// A tokenizer. Cheap to share; all methods take `&self`.
pub struct Tokenizer {
    /// The file, for messages.
    path: String,
    encoder: tokenizers::Tokenizer,
    vocabulary: Arc<Vocabulary>,
    frame: Frame,
    bos: Option<u32>,
    eos: Option<u32>,
}

impl Tokenizer {
    /// The tokens of a text. Special tokens written in the text become those tokens.
    pub fn encode(&self, text: &str, framing: Framing) -> Result<Vec<u32>, TokenizerError> {
        let framed = framing == Framing::Added;
        let encoding = guard(&self.path, "encoding a text", || self.encoder.encode_fast(text, framed))?;
        let mut ids = encoding.get_ids().to_vec();
        if framed {
            if let Some(start) = self.frame.start.filter(|start| ids.first() != Some(start)) {
                ids.insert(0, start);
            }
            if let Some(end) = self.frame.end.filter(|end| ids.last() != Some(end)) {
                ids.push(end);
            }
        }
        // A post-processor may add tokens that its vocabulary lacks.
        match ids.iter().find(|id| **id as usize >= self.vocabulary.len()) {
            Some(id) => {
                let message = format!("a text has token {id}, but the vocabulary has {} tokens", self.vocabulary.len());
                Err(TokenizerError { path: self.path.clone(), message })
            }
            None => Ok(ids),
        }
    }

    /// The text of tokens that stand alone. Bytes that are not UTF-8 become replacement characters.
    pub fn decode(&self, ids: &[u32], special: Special) -> String {
        let mut decoder = self.decoder(
            special,
            matches!(self.vocabulary.spelling, Spelling::SentencePiece { first_space_dropped: true }),
        );
        let mut text = String::new();
        for id in ids {
            decoder.push(*id, &mut text);
        }
        decoder.finish(&mut text);
        text
    }

    /// Decodes an output as it is generated. It continues a prompt, so a space at its start stays.
    pub fn stream(&self, special: Special) -> StreamDecoder {
        self.decoder(special, false)
    }

    fn decoder(&self, special: Special, first_space_dropped: bool) -> StreamDecoder {
        StreamDecoder::new(self.vocabulary.clone(), special, first_space_dropped)
    }

    /// The bytes of one token; none for an id that does not exist.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// Whether a token controls the model and is not part of an answer.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocabulary.is_special(id)
    }

    /// The id of a token by its text in the vocabulary's spelling, e.g. `<|im_end|>`.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.encoder.token_to_id(token)
    }

    /// One more than the largest token id. A model's vocabulary may be larger (padding), never smaller.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.len()
    }

    pub fn bos_token(&self) -> Option<u32> {
        self.bos
    }

    pub fn eos_token(&self) -> Option<u32> {
        self.eos
    }
}
