//! One file under a lint, and the walk over its blocks of evidence.

use std::cell::OnceCell;
use std::ops::Range;

use capdb::blocks::{Block, blocks};
use capdb::load::{FileKind, Loaded};
use capdb::problem::Problem;
use capdb::record::Source;
use capdb::resolve::Resolved;
use capdb::yaml::{Node, NodeKind};
use indexmap::IndexMap;
use serde::de::DeserializeOwned;

use super::Tree;

/// A sound file.
pub struct Subject<'a> {
    pub tree: &'a Tree<'a>,
    pub loaded: &'a Loaded,
    pub kind: FileKind,
    pub root: &'a Node,
    resolved: OnceCell<Option<Resolved>>,
}

impl<'a> Subject<'a> {
    pub fn new(tree: &'a Tree<'a>, loaded: &'a Loaded) -> Option<Self> {
        Some(Self { tree, loaded, kind: loaded.kind?, root: loaded.root()?, resolved: OnceCell::new() })
    }

    pub fn is_record(&self) -> bool {
        matches!(self.kind, FileKind::Arch | FileKind::Gpu)
    }

    pub fn id(&self) -> &'a str {
        self.root.get("id").and_then(Node::text).unwrap_or_default()
    }

    /// The record with its parents.
    pub fn resolved(&self) -> Option<&Resolved> {
        self.resolved.get_or_init(|| self.is_record().then(|| self.tree.resolve(self.id())).flatten()).as_ref()
    }

    /// Sources that an overlay brings along.
    pub fn own_sources(&self) -> IndexMap<String, Source> {
        let own = (self.kind == FileKind::Overlay).then(|| self.part("/sources")).flatten();
        own.unwrap_or_default()
    }

    /// A part of the file in its own type.
    pub fn part<T: DeserializeOwned>(&self, pointer: &str) -> Option<T> {
        self.root.pointer(pointer).and_then(|node| T::deserialize(node.to_json()).ok())
    }

    /// Span of the value at a pointer, or of its key where the value is a block.
    pub fn span(&self, pointer: &str) -> Range<usize> {
        match self.root.pointer(pointer) {
            Some(node) if matches!(node.kind, NodeKind::Mapping(_) | NodeKind::Sequence(_)) => self.key_span(pointer),
            Some(node) => node.span.clone(),
            None => 0..0,
        }
    }

    pub fn key_span(&self, pointer: &str) -> Range<usize> {
        self.root.key_span(pointer).unwrap_or(0..0)
    }

    pub fn error(&self, code: &'static str, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem::error(code, &self.loaded.file.path, span, message)
    }

    pub fn warning(&self, code: &'static str, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem::warning(code, &self.loaded.file.path, span, message)
    }

    /// Every block of the record that affects a decision or a plan.
    pub fn blocks(&self) -> Vec<Block<'a>> {
        blocks(self.root)
    }
}
