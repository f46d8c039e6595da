//! Texts of the files that problems point into, and places in them.

use std::collections::BTreeMap;
use std::ops::Range;

/// A place for people: both numbers start at 1, the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// Text of one file with an index of its lines.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    line_starts: Vec<usize>,
}

impl Source {
    pub fn new(text: String) -> Self {
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(index, _)| index + 1))
            .collect();
        Self { text, line_starts }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a byte offset; an offset past the end or inside a character is moved back to a boundary.
    pub fn place(&self, offset: usize) -> Place {
        let offset = self.boundary(offset);
        let line = self.line_of(offset);
        let column = self.text[self.line_starts[line]..offset].chars().count() + 1;
        Place { line: line + 1, column }
    }

    /// Index of the line, from 0, that holds `offset`.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    pub(super) fn lines(&self) -> usize {
        self.line_starts.len()
    }

    /// Byte range of a line without its line break.
    pub(super) fn line_range(&self, line: usize) -> Range<usize> {
        let start = self.line_starts[line];
        let end = self.line_starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        start..start + self.text[start..end].trim_end_matches('\r').len()
    }

    /// The nearest character boundary at or before `offset`.
    pub(super) fn boundary(&self, offset: usize) -> usize {
        let offset = offset.min(self.text.len());
        (0..=offset).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// All texts by path.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    by_path: BTreeMap<String, Source>,
}

impl Sources {
    pub fn insert(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.by_path.insert(path.into(), Source::new(text.into()));
    }

    pub fn get(&self, path: &str) -> Option<&Source> {
        self.by_path.get(path)
    }

    /// Start and end of a span, both at 1:1 when the file's text is not known.
    pub fn places(&self, path: &str, span: &Range<usize>) -> (Place, Place) {
        let origin = Place { line: 1, column: 1 };
        self.get(path).map_or((origin, origin), |source| (source.place(span.start), source.place(span.end)))
    }
}
