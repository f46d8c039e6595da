//! How much a body is once it is read.

use axum::http::StatusCode;

use crate::error::ApiError;

/// Strings, lists and objects of one body. Three bytes of it, `{},`, are more than a hundred in memory, so bytes alone bound
/// nothing; a context of a million tokens has no room for more messages than this.
const MOST: usize = 1 << 20;

/// 413 for JSON of more strings, lists and objects than are read. What is not JSON passes: the parser says so.
pub fn require_few(json: &[u8]) -> Result<(), ApiError> {
    // Each has a byte.
    if json.len() <= MOST {
        return Ok(());
    }
    let count = count(json);
    if count <= MOST {
        return Ok(());
    }
    let message = format!("the body has {count} strings, lists and objects; this server reads at most {MOST}");
    Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("request_too_large"))
}

fn count(json: &[u8]) -> usize {
    let (mut count, mut inside, mut bytes) = (0, false, json.iter());
    while let Some(byte) = bytes.next() {
        match (byte, inside) {
            (b'\\', true) => drop(bytes.next()),
            (b'"', _) => {
                count += usize::from(!inside);
                inside = !inside;
            }
            (b'{' | b'[', false) => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_a_string_is_one() {
        assert_eq!(count(br#"{"a": ["b", 1, 2, {}], "c\"[": "[[{{\\"}"#), 7);
        assert_eq!(count(br#""open [ "#), 1);
        assert_eq!(count(b""), 0);
    }

    #[test]
    fn small_values_are_counted_and_long_ones_are_not() {
        let refused = |text: String| require_few(text.as_bytes()).err().map(|error| error.status.as_u16());
        for small in ["{},", "[],", "[1],", "\"\",", "\"a\":1,"] {
            assert_eq!(refused(format!("[{}", small.repeat(MOST))), Some(413), "{small}");
        }
        assert_eq!(refused(format!("\"{}\"", "[{\\\"".repeat(MOST))), None);
        assert_eq!(refused(format!("[{}1]", "1,".repeat(8 * MOST))), None);
    }
}
