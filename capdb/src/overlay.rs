//! What a site overlay must keep to before it decides anything. A start lays one over the database without `capdb
//! validate` before it, and a strict request rests on its evidence: so what evidence needs is asked here too.

use std::ops::Range;

use indexmap::IndexMap;

use crate::blocks::{blocks, evidence};
use crate::problem::Problem;
use crate::record::{EvidenceKind, FusionId, Ladder, Overlay, Source, WORLD_SIZE_LIMITS};
use crate::yaml::{Entry, Node, NodeKind};

/// Every fault of an overlay that its types allow, under the codes of `capdb validate`. `shared` are the database's own
/// sources.
pub(crate) fn faults(path: &str, root: &Node, overlay: &Overlay, shared: &IndexMap<String, Source>) -> Vec<Problem> {
    let mut faults = Faults { path, found: Vec::new() };
    faults.ladders(overlay);
    faults.world_sizes(root);
    faults.evidence(root, overlay, shared);
    faults.sources(root, overlay);
    for entry in root.get("fusions").map(Node::entries).unwrap_or_default() {
        if let Err(what) = entry.key.parse::<FusionId>() {
            faults.add("unknown-word", &entry.key_span, what);
        }
    }
    faults.found
}

struct Faults<'a> {
    path: &'a str,
    found: Vec<Problem>,
}

impl Faults<'_> {
    fn add(&mut self, code: &'static str, span: &Range<usize>, what: impl Into<String>) {
        self.found.push(Problem::error(code, self.path, span.clone(), what));
    }

    fn ladders(&mut self, overlay: &Overlay) {
        let ladders = overlay.allreduce.as_ref().map_or(&[][..], |allreduce| &allreduce.preferred);
        for (index, ladder) in ladders.iter().enumerate() {
            let same = |other: &Ladder| {
                (other.world_size, other.topology, other.dtype) == (ladder.world_size, ladder.topology, ladder.dtype)
            };
            let second = ladders[..index].iter().any(same);
            let second = second.then(|| {
                let Ladder { world_size, topology, .. } = ladder;
                format!("a second ladder for world size {world_size} on {topology}; nothing says which of them wins")
            });
            for what in ladder.fault().into_iter().chain(second) {
                self.add("ladder-order", &(0..0), what);
            }
        }
    }

    /// Numbers of ranks, as values and as keys: no other key of an overlay is a number.
    fn world_sizes(&mut self, node: &Node) {
        for Entry { key, key_span, value } in node.entries() {
            match (&value.kind, key.as_str()) {
                (NodeKind::Integer(number), "world_size") => self.world_size(*number, &value.span),
                (NodeKind::Sequence(items), "world_sizes") => {
                    for item in items {
                        if let NodeKind::Integer(number) = item.kind {
                            self.world_size(number, &item.span);
                        }
                    }
                }
                _ => {}
            }
            if let Ok(number) = key.parse() {
                self.world_size(number, key_span);
            }
            self.world_sizes(value);
        }
        node.items().iter().for_each(|item| self.world_sizes(item));
    }

    fn world_size(&mut self, number: i64, span: &Range<usize>) {
        if !u32::try_from(number).is_ok_and(|number| WORLD_SIZE_LIMITS.contains(&number)) {
            self.add("world-size", span, format!("{number} is no world size from 2 to 1024"));
        }
    }

    fn evidence(&mut self, root: &Node, overlay: &Overlay, shared: &IndexMap<String, Source>) {
        for block in blocks(root) {
            let without = block.without_evidence();
            if !without.is_empty() {
                let place = block.pointer[1..].replace('/', ".");
                let what = format!("{place} has values without evidence: {}", without.join(", "));
                self.add("missing-evidence", &block.node.span, what);
            }
        }
        let mut cited = Vec::new();
        evidence(root, &mut cited);
        for node in cited {
            let word = |key: &str| node.get(key).and_then(Node::text).unwrap_or_default();
            let (Ok(kind), id) = (word("kind").parse::<EvidenceKind>(), word("source")) else { continue };
            match overlay.sources.get(id).or_else(|| shared.get(id)) {
                None => self.add("unknown-source", &node.span, format!("there is no source `{id}`")),
                Some(source) if !source.kind.carries(kind) => {
                    let what = format!("a source of kind `{}` cannot make a value `{kind}`", source.kind);
                    self.add("source-kind", &node.span, what);
                }
                Some(_) => {}
            }
        }
    }

    fn sources(&mut self, root: &Node, overlay: &Overlay) {
        for (id, source) in &overlay.sources {
            let lacking = source.lacks();
            if !lacking.is_empty() {
                let span = root.key_span(&format!("/sources/{id}")).unwrap_or(0..0);
                let what = format!("the measurement `{id}` does not give its {}", lacking.join(", "));
                self.add("incomplete-measurement", &span, what);
            }
        }
    }
}
