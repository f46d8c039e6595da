//! Open-ended ranges: `>=9.0`, `9.0+`, `sm_90..`. Every project that compared architectures by number shipped a bug, so
//! there is no place for a range in the database; this check says so before the schema says something less helpful.

use crate::problem::Problem;
use crate::yaml::{Node, NodeKind};

/// Keys whose texts are prose.
const PROSE: &[&str] =
    &["note", "notes", "meaning", "title", "name", "why", "reason", "hint", "url", "path", "version", "description"];

/// Finds texts and keys that are written as a range.
pub fn check(path: &str, root: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    visit(path, root, &mut problems);
    problems
}

fn visit(path: &str, node: &Node, problems: &mut Vec<Problem>) {
    match &node.kind {
        NodeKind::Text(text) if is_range(text) => problems.push(problem(path, node.span.clone(), text)),
        NodeKind::Sequence(items) => items.iter().for_each(|item| visit(path, item, problems)),
        NodeKind::Mapping(entries) => {
            for entry in entries.iter().filter(|entry| !PROSE.contains(&entry.key.as_str())) {
                if is_range(&entry.key) {
                    problems.push(problem(path, entry.key_span.clone(), &entry.key));
                }
                visit(path, &entry.value, problems);
            }
        }
        _ => {}
    }
}

fn problem(path: &str, span: std::ops::Range<usize>, text: &str) -> Problem {
    Problem::error("open-ended-range", path, span, format!("`{text}` is a range, and the database has none"))
        .label("covers what nobody looked at")
        .hint("name each architecture, world size or version that was looked at; 10.x, 11.x and 12.x are not a line")
}

/// `>=9.0`, `< 12`, `9.0+`, `sm_90..`, `..9`, `9-12`, `12.x`, `sm_12x`.
fn is_range(text: &str) -> bool {
    if text.len() > 32 {
        return false;
    }
    let compared = [">=", "<=", ">", "<", "^", "~"].iter().find_map(|sign| text.strip_prefix(sign));
    if let Some(rest) = compared {
        return is_number(rest.trim());
    }
    if let Some(rest) = text.strip_suffix('+').or_else(|| text.strip_suffix(".x")).or_else(|| text.strip_suffix(".*")) {
        return is_number(rest.trim());
    }
    if let Some((from, to)) = text.split_once("..") {
        return (is_number(from) || is_number(to)) && [from, to].iter().all(|end| end.is_empty() || is_number(end));
    }
    false
}

/// A version or an architecture: digits with dots, with or without `sm`.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix("sm_").or_else(|| text.strip_prefix("sm")).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_ranges_from_words() {
        for text in [">=9.0", "> 9", "9.0+", "sm_90+", "sm_90..", "..sm120", "9.0..12.0", "12.x", "<=12"] {
            assert!(is_range(text), "{text}");
        }
        for text in ["12.0", "sm_120a", "", "+", "..", ">", "native", "c++", "a..b", "580.65.06", "rtx-5090", "1.5e+3"]
        {
            assert!(!is_range(text), "{text}");
        }
    }
}
