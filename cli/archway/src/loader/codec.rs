//! The model's tokenizer and chat template as the server sees them.

use std::sync::Arc;

use engine::tokenizer::{Framing, Special, Tokenizer};
use engine_server::text::{Chat, Codec, CodecError};

use crate::rendering::TemplatePool;

/// A tokenizer and a template, either of which may be missing.
pub struct ModelCodec {
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub template: Option<TemplatePool>,
    /// Of the model; the tokenizer's may be smaller.
    pub vocabulary: u32,
}

impl ModelCodec {
    fn tokenizer(&self) -> Result<&Tokenizer, String> {
        self.tokenizer.as_deref().ok_or_else(|| "the model was loaded without a tokenizer; send token ids".to_owned())
    }
}

impl Codec for ModelCodec {
    fn encode(&self, text: &str, framing: Framing) -> Result<Vec<u32>, CodecError> {
        // Without its path, which is no business of a client's.
        let tokenizer = self.tokenizer().map_err(CodecError::Input)?;
        tokenizer.encode(text, framing).map_err(|error| CodecError::Input(error.message))
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        Ok(self.tokenizer()?.decode(tokens, Special::Kept))
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        self.tokenizer.as_ref().map_or_else(Vec::new, |tokenizer| tokenizer.token_bytes(token).to_vec())
    }

    fn token_name(&self, token: u32) -> String {
        String::from_utf8_lossy(&self.token_bytes(token)).into_owned()
    }

    fn render(&self, chat: &Chat) -> Result<String, CodecError> {
        let none = || CodecError::Input("the model has no chat template; use /v1/completions".to_owned());
        self.template.as_ref().ok_or_else(none)?.render(chat)
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }
}
