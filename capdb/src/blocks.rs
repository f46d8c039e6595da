//! The walk over a file's blocks of evidence: what a lint and a start both look at.

use crate::yaml::{Entry, Node, NodeKind};

/// A part of a record whose values share their evidence.
pub struct Block<'a> {
    /// JSON pointer, e.g. `/allreduce/one_shot`.
    pub pointer: String,
    pub node: &'a Node,
}

/// Keys of a block that say something about its values and are none themselves.
const ABOUT: &[&str] = &["evidence", "evidence_for", "readings", "note"];

/// Every block of a record or an overlay that affects a decision or a plan. Those of `preferred` are its ladders.
pub fn blocks(root: &Node) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut add = |pointer: String| {
        if let Some(node) = root.pointer(&pointer).filter(|node| !node.entries().is_empty()) {
            blocks.push(Block { pointer, node });
        }
    };
    for key in ["compile", "limits", "speculative/eagle3"] {
        add(format!("/{key}"));
    }
    for algorithm in ["symmetric_memory", "one_shot", "two_shot", "multimem"] {
        add(format!("/allreduce/{algorithm}"));
    }
    for index in 0..root.pointer("/allreduce/preferred").map_or(0, |node| node.items().len()) {
        add(format!("/allreduce/preferred/{index}"));
    }
    for group in ["fusions", "attention", "quantization"] {
        for entry in root.get(group).map(Node::entries).unwrap_or_default() {
            add(format!("/{group}/{}", entry.key));
        }
    }
    blocks
}

impl<'a> Block<'a> {
    /// Scalars and lists of the block by their path inside it, e.g. `max_message.6`.
    pub fn values(&self) -> Vec<(String, &'a Node)> {
        let mut values = Vec::new();
        for entry in self.node.entries().iter().filter(|entry| !ABOUT.contains(&entry.key.as_str())) {
            leaves(&entry.value, entry.key.clone(), &mut values);
        }
        values
    }

    /// Paths of the values that neither the block's evidence nor one of their own stands behind.
    pub fn without_evidence(&self) -> Vec<String> {
        if self.node.get("evidence").is_some() {
            return Vec::new();
        }
        let own = self.node.get("evidence_for").map(Node::entries).unwrap_or_default();
        let paths = self.values().into_iter().map(|(path, _)| path);
        paths.filter(|path| !own.iter().any(|entry| entry.key == *path)).collect()
    }

    /// Keys of `evidence_for` that name no value of the block.
    pub fn strange_keys(&self) -> Vec<&'a Entry> {
        let own = self.node.get("evidence_for").map(Node::entries).unwrap_or_default();
        let values = self.values();
        own.iter().filter(|entry| !values.iter().any(|(path, _)| *path == entry.key)).collect()
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

/// Every value of a key `source`.
pub fn cites<'a>(node: &'a Node, found: &mut Vec<&'a Node>) {
    for entry in node.entries() {
        match entry.key.as_str() {
            "source" => found.push(&entry.value),
            // The value of a reading is in the form of the key that it is a reading of.
            "value" => {}
            _ => cites(&entry.value, found),
        }
    }
    for item in node.items() {
        cites(item, found);
    }
}
