//! Edits of a text by byte range.

use std::ops::Range;

use capdb::yaml::Entry;

/// Replacements, applied together.
#[derive(Debug, Default)]
pub(super) struct Edits {
    edits: Vec<(Range<usize>, String)>,
}

impl Edits {
    pub fn replace(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.edits.push((span, text.into()));
    }

    /// Takes an entry with a scalar value away: its line where it has one of its own, else its part of the flow mapping.
    pub fn remove(&mut self, text: &str, entry: &Entry) {
        let (start, end) = (entry.key_span.start, entry.value.span.end);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[end..].find('\n').map_or(text.len(), |newline| end + newline + 1);
        let after = text[end..line_end].trim();
        if text[line_start..start].trim().is_empty() && (after.is_empty() || after.starts_with('#')) {
            return self.replace(line_start..line_end, "");
        }
        let following = text[end..].len() - text[end..].trim_start_matches([' ', ',']).len();
        if text[end..end + following].contains(',') {
            self.replace(start..end + following, "");
        } else {
            self.replace(text[..start].trim_end_matches([' ', ',']).len()..end, "");
        }
    }

    pub fn apply(mut self, text: &str) -> String {
        self.edits.sort_by_key(|(span, _)| (span.start, span.end));
        let mut result = String::with_capacity(text.len());
        let mut at = 0;
        for (span, replacement) in self.edits.iter().filter(|(span, _)| span.end <= text.len()) {
            if span.start >= at {
                result.push_str(&text[at..span.start]);
                result.push_str(replacement);
                at = span.end;
            }
        }
        result + &text[at..]
    }
}
