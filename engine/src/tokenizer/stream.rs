//! Text from tokens, one at a time.

use std::sync::Arc;

use super::Special;
use super::vocabulary::Vocabulary;

/// Turns the tokens of one output into text as they come. Bytes that do not complete a character yet are held back, so
/// the pieces together are the same text however the tokens are split into calls.
#[derive(Clone)]
pub struct StreamDecoder {
    vocabulary: Arc<Vocabulary>,
    special: Special,
    /// Drop one space at the start of the text.
    first_space_dropped: bool,
    /// The start of a character, at most three bytes between calls.
    held: Vec<u8>,
}

impl StreamDecoder {
    pub(super) fn new(vocabulary: Arc<Vocabulary>, special: Special, first_space_dropped: bool) -> Self {
        Self { vocabulary, special, first_space_dropped, held: Vec::new() }
    }

    /// Appends the text that is final with this token.
    pub fn push(&mut self, id: u32, text: &mut String) {
        if self.special == Special::Skipped && self.vocabulary.is_special(id) {
            return;
        }
        let mut bytes = self.vocabulary.bytes(id);
        if self.first_space_dropped && !bytes.is_empty() {
            self.first_space_dropped = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        match std::str::from_utf8(bytes) {
            Ok(whole) if self.held.is_empty() => text.push_str(whole),
            _ => {
                self.held.extend_from_slice(bytes);
                self.release(text);
            }
        }
    }

    /// Appends what is still held: a character that never became complete is a replacement character.
    pub fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.held));
        self.held.clear();
    }

    /// Moves complete characters out of `held`, with a replacement character for each wrong sequence.
    fn release(&mut self, text: &mut String) {
        let mut rest = self.held.as_slice();
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => error,
            };
            let (valid, after) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            let Some(wrong) = error.error_len() else {
                rest = after;
                break;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &after[wrong..];
        }
        let done = self.held.len() - rest.len();
        self.held.drain(..done);
    }
}
