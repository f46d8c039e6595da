//! The seam to the detokeniser: tokens in, final text out.

use crate::types::Request;

/// Turns the tokens of one output into text, holding back what may still change: an incomplete character, or the
/// beginning of a stop string.
pub trait TextDecoder: Send {
    /// Takes one more output token and appends the text that became final to `text`. Returns true when a stop string
    /// is complete: the output ends there, with the text before it (or through it, for `include_stop`).
    fn push(&mut self, token: u32, text: &mut String) -> bool;

    /// The output ended otherwise: appends what was held back.
    fn finish(&mut self, text: &mut String);
}

/// Makes a decoder for each output.
pub trait TextPipeline: Send + Sync {
    fn decoder(&self, request: &Request) -> Box<dyn TextDecoder>;
}

/// For callers that want token ids alone: no text, and no stop strings.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoText;

impl TextPipeline for NoText {
    fn decoder(&self, _: &Request) -> Box<dyn TextDecoder> {
        Box::new(NoText)
    }
}

impl TextDecoder for NoText {
    fn push(&mut self, _: u32, _: &mut String) -> bool {
        false
    }

    fn finish(&mut self, _: &mut String) {}
}
