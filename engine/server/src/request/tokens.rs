//! Text to tokens, and the room that a prompt leaves.

use std::sync::Arc;

use crate::error::ApiError;
use crate::text::Codec;

/// Text of this many bytes or more is tokenised away from the threads that serve connections.
const LONG_TEXT: usize = 16 << 10;

/// Token ids of a text, errors under the name `param`.
pub async fn encode(codec: &Arc<dyn Codec>, text: String, special: bool, param: &str) -> Result<Vec<u32>, ApiError> {
    let result = if text.len() < LONG_TEXT {
        codec.encode(&text, special)
    } else {
        let codec = Arc::clone(codec);
        tokio::task::spawn_blocking(move || codec.encode(&text, special))
            .await
            .unwrap_or_else(|error| Err(format!("the tokenizer failed: {error}")))
    };
    result.map_err(|message| ApiError::invalid(param, format!("`{param}`: {message}")))
}

/// 400 for a token id outside of the vocabulary.
pub fn require_vocabulary(param: &str, token: u32, vocabulary: u32) -> Result<(), ApiError> {
    if token < vocabulary {
        return Ok(());
    }
    let message = format!("`{param}`: token id {token} is not below the vocabulary's size {vocabulary}");
    Err(ApiError::invalid(param, message))
}

/// How many output tokens a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The field that said so, and what.
    pub asked: Option<(&'static str, u32)>,
    /// Otherwise this many, or as many as there is room for.
    pub default: Option<u32>,
}

/// Output tokens for a prompt of `length` tokens in a context of `context`.
pub fn budget(param: &str, length: usize, context: u32, wish: Wish) -> Result<u32, ApiError> {
    if length == 0 {
        return Err(ApiError::invalid(param, format!("`{param}` has no tokens")));
    }
    let room = u32::try_from(length).ok().and_then(|length| context.checked_sub(length)).unwrap_or(0);
    if room == 0 {
        let message = format!(
            "`{param}` has {length} tokens, which leaves no room for an answer: this model's context is {context} tokens"
        );
        return Err(ApiError::invalid(param, message).with_code("context_length_exceeded"));
    }
    match wish.asked {
        None => Ok(wish.default.map_or(room, |default| default.min(room))),
        Some((_, asked)) if asked <= room => Ok(asked),
        Some((field, asked)) => {
            let message = format!(
                "the prompt has {length} tokens and `{field}` asks for {asked} more, but this model's context is \
                 {context} tokens; ask for {room} or fewer"
            );
            Err(ApiError::invalid(field, message).with_code("context_length_exceeded"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(length: usize, asked: Option<u32>, default: Option<u32>) -> Result<u32, Option<&'static str>> {
        let wish = Wish { asked: asked.map(|asked| ("max_tokens", asked)), default };
        budget("prompt", length, 10, wish).map_err(|error| error.code)
    }

    #[test]
    fn the_context_bounds_prompt_and_answer() {
        assert_eq!(of(4, None, None), Ok(6));
        assert_eq!(of(4, None, Some(16)), Ok(6));
        assert_eq!(of(4, None, Some(2)), Ok(2));
        assert_eq!(of(4, Some(6), None), Ok(6));
        assert_eq!(of(4, Some(7), None), Err(Some("context_length_exceeded")));
        assert_eq!(of(10, None, None), Err(Some("context_length_exceeded")));
        assert_eq!(of(usize::MAX, None, None), Err(Some("context_length_exceeded")));
        assert_eq!(of(0, None, None), Err(Some("invalid_value")));
    }
}
