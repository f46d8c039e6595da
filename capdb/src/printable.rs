//! Text from files on its way to a terminal, which obeys control characters: they could hide, colour or rewrite what stands
//! beside them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The same text with what controls a terminal or the direction of writing as `\u001b`: control characters but for the end
/// of a line and the tabulator, and the characters that turn text round. A JSON document stays one of the same value.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(controls) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match controls(letter) {
            // All of them have four digits at most.
            true => drop(write!(clean, "\\u{:04x}", u32::from(letter))),
            false => clean.push(letter),
        }
    }
    Cow::Owned(clean)
}

fn controls(letter: char) -> bool {
    let turns = matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && !matches!(letter, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_spelled_out() {
        let text = "a\tb\nü 日本 \u{200f}";
        assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        assert_eq!(
            printable("\u{1b}[2J\r\u{9b}1m\u{0}\u{7f}\u{202e}x"),
            "\\u001b[2J\\u000d\\u009b1m\\u0000\\u007f\\u202ex"
        );
        let value = serde_json::json!({"a": "\u{1b}\u{9b}\u{7f}\u{202e}\"\\"});
        let shown = printable(&format!("{value:#}")).into_owned();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
