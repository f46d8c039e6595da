//! One file under a lint, and the walk over its blocks of evidence.

use std::cell::OnceCell;
use std::ops::Range;

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

/// A part of a record whose values share their evidence.
pub struct Block<'a> {
    /// JSON pointer, e.g. `/allreduce/one_shot`.
    pub pointer: String,
    pub node: &'a Node,
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

    /// Every block of the record that steers a decision or a plan. Those of `preferred` are its ladders.
    pub fn blocks(&self) -> Vec<Block<'a>> {
        let mut blocks = Vec::new();
        let mut add = |pointer: String| {
            if let Some(node) = self.root.pointer(&pointer).filter(|node| !node.entries().is_empty()) {
                blocks.push(Block { pointer, node });
            }
        };
        for key in ["compile", "limits", "speculative/eagle3"] {
            add(format!("/{key}"));
        }
        for algorithm in ["symmetric_memory", "one_shot", "two_shot", "multimem"] {
            add(format!("/allreduce/{algorithm}"));
        }
        for index in 0..self.root.pointer("/allreduce/preferred").map_or(0, |node| node.items().len()) {
            add(format!("/allreduce/preferred/{index}"));
        }
        for group in ["fusions", "attention", "quantization"] {
            for entry in self.root.get(group).map(Node::entries).unwrap_or_default() {
                add(format!("/{group}/{}", entry.key));
            }
        }
        blocks
    }
}

/// Keys of a block that say something about its values and are none themselves.
pub const ABOUT: &[&str] = &["evidence", "evidence_for", "readings", "note"];

impl<'a> Block<'a> {
    /// Scalars and lists of the block by their path inside it, e.g. `max_message.6`.
    pub fn values(&self) -> Vec<(String, &'a Node)> {
        let mut values = Vec::new();
        for entry in self.node.entries().iter().filter(|entry| !ABOUT.contains(&entry.key.as_str())) {
            leaves(&entry.value, entry.key.clone(), &mut values);
        }
        values
    }
}

fn leaves<'a>(node: &'a Node, path: String, values: &mut Vec<(String, &'a Node)>) {
    match &node.kind {
        NodeKind::Mapping(entries) => {
            for entry in entries {
                leaves(&entry.value, format!("{path}.{}", entry.key), values);
            }
        }
        _ => values.push((path, node)),
    }
}

/// Every evidence below a node: `evidence`, `features_evidence`, and the entries of `evidence_for`.
pub fn evidence<'a>(node: &'a Node, found: &mut Vec<&'a Node>) {
    for entry in node.entries() {
        match entry.key.as_str() {
            "evidence" | "features_evidence" => found.push(&entry.value),
            "evidence_for" => found.extend(entry.value.entries().iter().map(|entry| &entry.value)),
            _ => evidence(&entry.value, found),
        }
    }
    for item in node.items() {
        evidence(item, found);
    }
}
