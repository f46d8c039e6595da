//! A tokenizer whose tokens are bytes.

use engine::tokenizer::Framing;
use serde_json::Value;

use crate::text::{Chat, Codec, CodecError};

/// The first token of a text.
const BEGIN: u32 = 256;
const VOCABULARY: u32 = 512;

/// Tokens 0 to 255 are bytes; the others have no text.
#[derive(Clone, Copy, Debug)]
pub struct MockCodec;

impl Codec for MockCodec {
    fn encode(&self, text: &str, framing: Framing) -> Result<Vec<u32>, CodecError> {
        let begin = (framing == Framing::Added).then_some(BEGIN);
        Ok(begin.into_iter().chain(text.bytes().map(u32::from)).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.token_bytes(token)).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        u8::try_from(token).into_iter().collect()
    }

    fn token_name(&self, token: u32) -> String {
        match u8::try_from(token) {
            Ok(byte) if byte.is_ascii_graphic() => char::from(byte).to_string(),
            _ => format!("<{token}>"),
        }
    }

    fn render(&self, chat: &Chat) -> Result<String, CodecError> {
        let mut text = String::new();
        for message in &chat.messages {
            let field = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
            text.push_str(&format!("{}: {}\n", field("role"), field("content")));
        }
        if chat.add_generation_prompt {
            text.push_str("assistant: ");
        }
        Ok(text)
    }

    fn vocabulary(&self) -> u32 {
        VOCABULARY
    }
}
