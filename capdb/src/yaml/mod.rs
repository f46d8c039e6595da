//! A strict reader for the YAML of the database.
//!
//! It accepts the part of YAML that a YAML 1.1 and a YAML 1.2 reader understand alike, one document a file, without
//! anchors, merge keys, tags or directives, and reports everything else with its place, all of it at once where the
//! text can still be parsed. So a Python program that loads the same file sees the same values.

mod build;
mod node;
mod scalar;
mod syntax;

pub use node::{Entry, Node, NodeKind};

use crate::problem::Problem;

/// Largest file that is read, in bytes. The largest record is far below it.
pub const MAX_FILE_BYTES: usize = 4 << 20;
/// Longest line, in bytes. Scanning a flow collection is quadratic in the length of its line, so this bounds the time.
pub const MAX_LINE_BYTES: usize = 4000;
/// Deepest nesting of mappings and sequences.
pub const MAX_DEPTH: usize = 32;
/// Most nodes in one file.
pub const MAX_NODES: usize = 200_000;

/// What reading a file gave: a tree where the text could be parsed at all, and everything found on the way.
#[derive(Clone, Debug)]
pub struct Document {
    pub root: Option<Node>,
    pub problems: Vec<Problem>,
}

/// Checks size and encoding. `path` is only used in problems.
pub fn decode<'a>(path: &str, bytes: &'a [u8]) -> Result<&'a str, Problem> {
    if bytes.len() > MAX_FILE_BYTES {
        let message =
            format!("the file has {} bytes; files of the database have at most {MAX_FILE_BYTES}", bytes.len());
        return Err(Problem::error("file-too-large", path, 0..0, message)
            .hint("is this really a record? split it, or remove what does not belong here"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::error(
            "not-text",
            path,
            0..0,
            format!("the file is not UTF-8 text: byte {} does not fit", error.valid_up_to()),
        )
        .hint("save the file as UTF-8; a binary file does not belong here")
    })?;
    if let Some(at) = text.find(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        let found = text[at..].chars().next().map_or(0, u32::from);
        return Err(Problem::error(
            "not-text",
            path,
            at..at + 1,
            format!("control character U+{found:04X} in the file"),
        )
        .hint("remove it; a binary file does not belong here"));
    }
    check_lines(path, text)
}

fn check_lines<'a>(path: &str, text: &'a str) -> Result<&'a str, Problem> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.len() > MAX_LINE_BYTES {
            let message = format!("a line of {} bytes; the longest allowed has {MAX_LINE_BYTES}", line.len());
            return Err(Problem::error("line-too-long", path, start..start, message)
                .hint("break it: one key or list item a line"));
        }
        start += line.len();
    }
    Ok(text)
}

/// Reads one file. Never panics; the time is linear in the length of the text.
pub fn read(path: &str, bytes: &[u8]) -> Document {
    match decode(path, bytes) {
        Ok(text) => build::build(path, text),
        Err(problem) => Document { root: None, problems: vec![problem] },
    }
}

#[cfg(test)]
mod tests;
