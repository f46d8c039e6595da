//! `arch/0` → `arch/1`.
//!
//! Version 0 named the capability `capability` and the parent `parent`; sizes were numbers with the unit in the key
//! (`max_message_mb: {2: 64}`, meaning MiB, and `_kb`, meaning KiB); features were booleans; and a block said
//! `provenance: measured | documented | copied` and `source: …` where version 1 has `evidence`.

use capdb::load::Loaded;
use capdb::problem::Problem;
use capdb::yaml::{Entry, Node, NodeKind};

use super::edit::Edits;

pub(super) fn lift(loaded: &Loaded) -> Result<String, Vec<Problem>> {
    let text = std::str::from_utf8(&loaded.file.bytes).unwrap_or_default();
    let mut step = Step { path: &loaded.file.path, text, edits: Edits::default(), problems: Vec::new() };
    if let Some(root) = loaded.root() {
        step.top(root);
    }
    if step.problems.is_empty() { Ok(step.edits.apply(text)) } else { Err(step.problems) }
}

struct Step<'a> {
    path: &'a str,
    text: &'a str,
    edits: Edits,
    problems: Vec<Problem>,
}

impl Step<'_> {
    fn top(&mut self, root: &Node) {
        for entry in root.entries() {
            match entry.key.as_str() {
                "schema" => self.edits.replace(entry.value.span.clone(), "arch/1"),
                "capability" => self.edits.replace(entry.key_span.clone(), "compute_capability"),
                "parent" => self.edits.replace(entry.key_span.clone(), "extends"),
                "features" => entry.value.entries().iter().for_each(|feature| self.feature(feature)),
                _ => self.block(&entry.value),
            }
        }
    }

    fn feature(&mut self, entry: &Entry) {
        match entry.value.kind {
            NodeKind::Bool(has) => {
                self.edits.replace(entry.value.span.clone(), if has { "native" } else { "absent" });
            }
            _ => self.refuse(&entry.value, "a feature of version 0 is true or false"),
        }
    }

    fn block(&mut self, node: &Node) {
        for entry in node.entries() {
            let unit = [("_mb", 20), ("_kb", 10)].into_iter().find(|(suffix, _)| entry.key.ends_with(suffix));
            match (entry.key.as_str(), unit) {
                ("provenance", _) => self.evidence(node, entry),
                (_, Some((suffix, shift))) => {
                    self.edits.replace(entry.key_span.clone(), entry.key.trim_end_matches(suffix));
                    self.sizes(&entry.value, shift);
                }
                _ => self.block(&entry.value),
            }
        }
        node.items().iter().for_each(|item| self.block(item));
    }

    /// Numbers of MiB or KiB → sizes with their unit.
    fn sizes(&mut self, node: &Node, shift: u32) {
        let unit = f64::from(1_u32 << shift);
        let bytes = match &node.kind {
            NodeKind::Mapping(entries) => return entries.iter().for_each(|entry| self.sizes(&entry.value, shift)),
            NodeKind::Integer(count) => *count as f64 * unit,
            NodeKind::Float(count) => count * unit,
            _ => return self.refuse(node, "a size of version 0 is a number"),
        };
        let whole = bytes.fract() == 0.0 && bytes >= 1.0 && bytes <= capdb::quantity::MAX_SIZE as f64;
        match whole.then(|| capdb::quantity::Size::from_bytes(bytes as u64)) {
            Some(Ok(size)) => self.edits.replace(node.span.clone(), size.to_string()),
            _ => self.refuse(node, "this is not a whole number of bytes between 1 and 2^40"),
        }
    }

    /// `provenance` and `source` → `evidence`, in the place of the former.
    fn evidence(&mut self, block: &Node, entry: &Entry) {
        let kind = match entry.value.text() {
            Some("measured") => "measured",
            Some("documented") => "documented",
            // Copied from another row or project: nobody checked it here.
            Some("copied") => "guessed",
            _ => return self.refuse(&entry.value, "provenance is measured, documented or copied"),
        };
        let source = block.entry("source").and_then(|source| Some((source, source.value.text()?)));
        let Some((source, id)) = source else {
            return self.refuse(&entry.value, "there is no `source` beside it");
        };
        let text = format!("evidence: {{kind: {kind}, source: {id}}}");
        self.edits.replace(entry.key_span.start..entry.value.span.end, text);
        self.edits.remove(self.text, source);
    }

    fn refuse(&mut self, node: &Node, why: &str) {
        let message = format!("this cannot be lifted to arch/1: {why}");
        let problem = Problem::error("not-liftable", self.path, node.span.clone(), message);
        self.problems.push(problem.hint("fix it by hand, then migrate again"));
    }
}
