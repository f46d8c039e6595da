//! Final text from a tokenizer and a request's stop strings.

use std::sync::Arc;

use super::{TextDecoder, TextPipeline};
use crate::tokenizer::{Special, StopMatcher, StreamDecoder, Tokenizer};
use crate::types::Request;

/// Decodes outputs with a tokenizer; special tokens are not text.
pub struct TokenizerText(pub Arc<Tokenizer>);

impl TextPipeline for TokenizerText {
    fn decoder(&self, request: &Request) -> Box<dyn TextDecoder> {
        Box::new(Output {
            decoder: self.0.stream(Special::Skipped),
            matcher: StopMatcher::new(&request.params.stop, request.params.include_stop),
            piece: String::new(),
        })
    }
}

struct Output {
    decoder: StreamDecoder,
    matcher: StopMatcher,
    /// Text between decoder and matcher; kept for its memory.
    piece: String,
}

impl TextDecoder for Output {
    fn push(&mut self, token: u32, text: &mut String) -> bool {
        self.piece.clear();
        self.decoder.push(token, &mut self.piece);
        let stopped = self.matcher.push(&self.piece);
        text.push_str(&stopped.text);
        stopped.stop.is_some()
    }

    fn finish(&mut self, text: &mut String) {
        self.piece.clear();
        self.decoder.finish(&mut self.piece);
        text.push_str(&self.matcher.push(&self.piece).text);
        text.push_str(&self.matcher.finish());
    }
}
