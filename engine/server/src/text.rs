//! What the server needs of a tokenizer and a chat template.

use engine::tokenizer::Framing;
use serde_json::{Map, Value};

/// Conversations that a server has rendered at once. A template is a program of the checkpoint's and may take its time.
pub const RENDERED_AT_ONCE: usize = 4;

/// Why a text or a conversation cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The client's to fix: the message says what is wrong with it.
    #[error("{0}")]
    Input(String),
    /// No fault of the client's, and it may pass.
    #[error("{0}")]
    Server(String),
}

/// Tokenizer and chat template of the served model. Errors are messages for the client.
pub trait Codec: Send + Sync + 'static {
    /// Token ids of `text`.
    fn encode(&self, text: &str, framing: Framing) -> Result<Vec<u32>, CodecError>;

    /// Text of `tokens`, special tokens included. Bytes that are not UTF-8 become U+FFFD.
    fn decode(&self, tokens: &[u32]) -> Result<String, String>;

    /// The bytes that one token stands for; part of a character in some vocabularies.
    fn token_bytes(&self, token: u32) -> Vec<u8>;

    /// The token as the vocabulary spells it.
    fn token_name(&self, token: u32) -> String;

    /// The prompt text of a conversation. A server asks for [`RENDERED_AT_ONCE`] at most at a time.
    fn render(&self, chat: &Chat) -> Result<String, CodecError>;

    /// Number of token ids, which are all below it.
    fn vocabulary(&self) -> u32;
}

/// A conversation for the chat template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chat {
    /// Objects with `role`, `content` (text) and, where the client gave it, `name`.
    pub messages: Vec<Value>,
    /// End with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
}
