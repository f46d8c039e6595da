//! The smallest edits of a source, as pieces of text at byte places. Everything outside of them stays byte for byte.

mod gate;
mod row;

use std::ops::Range;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use similar::TextDiff;

pub use gate::open;
pub use row::{correct, insert};

/// A piece of text in place of a range; an empty range is an insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pub range: Range<usize>,
    pub text: String,
}

impl Splice {
    pub fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }
}

/// One file before and after.
#[derive(Clone, Debug)]
pub struct FileEdit {
    /// Below site-packages, with `/`.
    pub path: String,
    /// Where it lies.
    pub file: PathBuf,
    pub before: String,
    pub after: String,
    /// Records whose gaps it closes.
    pub records: Vec<String>,
}

impl FileEdit {
    /// A unified diff, with the names that `patch -p1` takes in site-packages.
    pub fn diff(&self) -> String {
        let diff = TextDiff::from_lines(&self.before, &self.after);
        diff.unified_diff().header(&format!("a/{}", self.path), &format!("b/{}", self.path)).to_string()
    }
}

/// The text with every piece in its place. Pieces must not overlap; two insertions at one place keep their order.
pub fn splice(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.range.start);
    let (mut out, mut done) = (String::with_capacity(text.len() + 256), 0);
    for piece in &splices {
        out.push_str(&text[done..piece.range.start]);
        out.push_str(&piece.text);
        done = piece.range.end;
    }
    out.push_str(&text[done..]);
    out
}

/// SHA-256 as hexadecimal digits.
pub fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How the lines around a byte end.
fn newline(text: &str, at: usize) -> &'static str {
    let end = text[at..].find('\n').map(|end| at + end).or_else(|| text[..at].rfind('\n'));
    if end.is_some_and(|end| text[..end].ends_with('\r')) { "\r\n" } else { "\n" }
}

/// The line's text up to a byte.
fn line_head(text: &str, at: usize) -> &str {
    &text[text[..at].rfind('\n').map_or(0, |start| start + 1)..at]
}
