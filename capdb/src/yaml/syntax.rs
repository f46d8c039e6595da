//! The parser's own errors, put into our words.

use granit_parser::{ErrorKind, ScanError};

use crate::problem::Problem;

/// A problem for a text that cannot be parsed.
pub(super) fn problem(path: &str, text: &str, error: &ScanError) -> Problem {
    let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let at = (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let end = at + text[at..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
    let found = |code, message: &str, hint: &str| Problem::error(code, path, at..end, message).hint(hint);
    match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInPlainScalar => found("tab", "a tab where YAML allows spaces only", "indent with spaces"),
        ErrorKind::RecursionLimitExceeded => too_deep(path, at..end),
        ErrorKind::DirectiveDisallowed => {
            found("directive", "directives (`%`) are not used in the database", "remove the line")
        }
        ErrorKind::UnknownAnchor => found(
            "anchor",
            "anchors and aliases are not used in the database",
            "write the value out; to share values, let one record extend another",
        ),
        _ if leading_tab(text, at) => found("tab", "a tab where YAML allows spaces only", "indent with spaces"),
        _ => found("syntax", &sentence(error), "check quotes, colons and indentation on this line and the one above"),
    }
}

pub(super) fn too_deep(path: &str, span: std::ops::Range<usize>) -> Problem {
    Problem::error("too-deep", path, span, format!("nesting deeper than {} levels", super::MAX_DEPTH))
        .hint("no record needs that; check the indentation")
}

/// Whether only white space with a tab in it stands before `at` on its line.
fn leading_tab(text: &str, at: usize) -> bool {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or("");
    let indent = &line[..line.len() - line.trim_start().len()];
    indent.contains('\t')
}

/// The parser's message without its place, which we show ourselves.
fn sentence(error: &ScanError) -> String {
    let text = error.to_string();
    let places = [" at byte ", " at char ", " at line "];
    let end = places.iter().filter_map(|place| text.find(place)).min().unwrap_or(text.len());
    let text = &text[..end];
    format!("not valid YAML: {}", text.trim_end_matches('.'))
}
