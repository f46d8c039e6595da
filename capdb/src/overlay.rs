//! Reading a site overlay: all that it must keep to before it decides anything. A start lays one over the database without
//! `capdb validate` before it, and a strict request rests on its evidence, so the start and the validation read by this.

use std::ops::Range;

use crate::assembly::{Index, check_schema_words};
use crate::blocks::{blocks, cites, evidence};
use crate::load::{FileKind, Loaded};
use crate::problem::{Problem, Severity};
use crate::ranges;
use crate::record::{EvidenceKind, FusionId, Ladder, Overlay, Source, WORLD_SIZE_LIMITS};
use crate::typed;
use crate::yaml::{Entry, Node, NodeKind};

/// Reads a file as an overlay of a database. Errors: a file that is not an overlay, or one of another schema; a record that
/// does not exist; ladders that cannot be followed; words that are none; evidence that nothing stands behind.
pub fn read(loaded: &mut Loaded, index: &Index) -> Result<Overlay, Vec<Problem>> {
    loaded.kind = Some(FileKind::Overlay);
    let mut problems = loaded.document.problems.clone();
    check_schema_words(std::slice::from_ref(loaded), &mut problems);
    if let Some(root) = loaded.root() {
        empty(&loaded.file.path, root, &mut problems);
        problems.extend(ranges::check(&loaded.file.path, root));
    }
    problems.retain(|problem| problem.severity == Severity::Error);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (overlay, _newer) = typed::read::<Overlay>(loaded).map_err(|problem| vec![problem])?;
    let root = loaded.root();
    let found = root.map(|root| Faults::of(&loaded.file.path, root, &overlay, index)).unwrap_or_default();
    if found.is_empty() { Ok(overlay) } else { Err(found) }
}

/// Keys and items without a value, which the types would take for values that are left out.
fn empty(path: &str, node: &Node, problems: &mut Vec<Problem>) {
    let mut look = |name: String, value: &Node, span: &Range<usize>| {
        if value.kind == NodeKind::Null {
            problems.push(Problem::error("empty-value", path, span.clone(), format!("{name} has no value")));
        }
        empty(path, value, problems);
    };
    for Entry { key, value, .. } in node.entries() {
        look(format!("`{key}`"), value, &value.span);
        for item in value.items().iter().filter(|item| item.kind == NodeKind::Null) {
            look(format!("an item of `{key}`"), item, &item.span);
        }
    }
    node.items().iter().for_each(|item| empty(path, item, problems));
}

struct Faults<'a> {
    path: &'a str,
    found: Vec<Problem>,
}

impl<'a> Faults<'a> {
    /// Every fault of an overlay that its types allow, under the codes and in the words of `capdb validate`.
    fn of(path: &'a str, root: &Node, overlay: &Overlay, index: &Index) -> Vec<Problem> {
        let mut faults = Faults { path, found: Vec::new() };
        faults.target(root, index);
        faults.ladders(root, overlay);
        faults.numbers(root);
        faults.words(root, index);
        faults.evidence(root, overlay, index);
        faults.sources(root, overlay);
        faults.found
    }

    fn add(&mut self, code: &'static str, span: &Range<usize>, what: impl Into<String>) {
        self.found.push(Problem::error(code, self.path, span.clone(), what));
    }

    fn target(&mut self, root: &Node, index: &Index) {
        let Some(node) = root.get("applies_to") else { return };
        let word = node.text().unwrap_or_default();
        // An alias would be a second name of the same record.
        if index.id_of(word) != Some(word) {
            self.add("stack-rows", &node.span, format!("there is no record `{word}`"));
            let known = format!("known are {}", index.ids().join(", "));
            self.found.last_mut().into_iter().for_each(|problem| problem.hint = Some(known.clone()));
        }
    }

    fn ladders(&mut self, root: &Node, overlay: &Overlay) {
        let ladders = overlay.allreduce.as_ref().map_or(&[][..], |allreduce| &allreduce.preferred);
        let nodes = root.pointer("/allreduce/preferred").map(Node::items).unwrap_or_default();
        for (index, (ladder, node)) in ladders.iter().zip(nodes).enumerate() {
            let same = |other: &Ladder| {
                (other.world_size, other.topology, other.dtype) == (ladder.world_size, ladder.topology, ladder.dtype)
            };
            let second = ladders[..index].iter().any(same);
            let second =
                second.then(|| format!("a second ladder for world size {} on {}", ladder.world_size, ladder.topology));
            for what in ladder.fault().into_iter().chain(second) {
                self.add("ladder-order", &node.span, what);
            }
        }
    }

    /// Numbers of ranks, as values and as keys, and times: there are no other numbers in an overlay.
    fn numbers(&mut self, node: &Node) {
        for Entry { key, value, .. } in node.entries() {
            match (&value.kind, key.as_str()) {
                (NodeKind::Integer(number), "world_size") => self.world_size(*number, &value.span),
                (NodeKind::Integer(number), "nanoseconds") if *number < 1 => {
                    self.add("out-of-range", &value.span, format!("`nanoseconds` is {number}: nothing takes no time"));
                }
                (NodeKind::Sequence(items), "world_sizes") => {
                    for item in items {
                        if let NodeKind::Integer(number) = item.kind {
                            self.world_size(number, &item.span);
                        }
                    }
                }
                (NodeKind::Mapping(sizes), "max_message") => {
                    for Entry { key, key_span, .. } in sizes {
                        self.world_size(key.parse().unwrap_or(0), key_span);
                    }
                }
                _ => {}
            }
            self.numbers(value);
        }
        node.items().iter().for_each(|item| self.numbers(item));
    }

    fn world_size(&mut self, number: i64, span: &Range<usize>) {
        if !u32::try_from(number).is_ok_and(|number| WORLD_SIZE_LIMITS.contains(&number)) {
            self.add("world-size", span, format!("{number} is not a world size from 2 to 1024"));
        }
    }

    /// Fusions and required features.
    fn words(&mut self, root: &Node, index: &Index) {
        for entry in root.get("fusions").map(Node::entries).unwrap_or_default() {
            if entry.key.parse::<FusionId>().is_err() {
                self.unknown("fusions", &entry.key, &entry.key_span);
            }
        }
        for algorithm in ["one_shot", "two_shot", "multimem"] {
            let required = root.pointer(&format!("/allreduce/{algorithm}/requires"));
            for item in required.map(Node::items).unwrap_or_default() {
                let word = item.text().unwrap_or_default();
                if !index.vocab.features.contains_key(word) {
                    self.unknown("features", word, &item.span);
                }
            }
        }
    }

    fn unknown(&mut self, group: &str, word: &str, span: &Range<usize>) {
        self.add("unknown-vocabulary", span, format!("`{word}` is not a word of {group} in vocab.yaml"));
    }

    fn evidence(&mut self, root: &Node, overlay: &Overlay, index: &Index) {
        for block in blocks(root) {
            let place = block.pointer[1..].replace('/', ".");
            let span = root.key_span(&block.pointer).unwrap_or(0..0);
            if !block.without_evidence().is_empty() {
                self.add("missing-evidence", &span, format!("{place} has values without evidence"));
            }
            for entry in block.strange_keys() {
                let what = format!("`{}` is not a value of this block", entry.key);
                self.add("evidence-key", &entry.key_span, what);
            }
        }
        let known = |id: &Node| {
            let id = id.text().unwrap_or_default();
            overlay.sources.get(id).or_else(|| index.sources.sources.get(id))
        };
        let (mut cited, mut found) = (Vec::new(), Vec::new());
        cites(root, &mut cited);
        for node in cited.into_iter().filter(|node| known(node).is_none()) {
            let what = format!("there is no source `{}`", node.text().unwrap_or_default());
            self.add("unknown-source", &node.span, what);
        }
        evidence(root, &mut found);
        for node in found {
            let Some(kind) = node.get("kind") else { continue };
            self.kind(node, kind, node.get("source").and_then(known));
        }
    }

    /// One evidence: who may write it, and whether its source carries it.
    fn kind(&mut self, node: &Node, kind: &Node, source: Option<&Source>) {
        let span = kind.span.clone();
        let Ok(kind) = kind.text().unwrap_or_default().parse::<EvidenceKind>() else { return };
        if let Some(source) = source.filter(|source| !source.kind.carries(kind)) {
            let what = format!("a source of kind `{}` cannot make a value `{kind}`", source.kind);
            self.add("source-kind", &span, what);
        }
        match kind {
            EvidenceKind::Inherited => self.add("inherited-by-author", &span, "an author does not write `inherited`"),
            EvidenceKind::Upstream if node.get("kernel").is_none() => {
                self.add("source-kind", &span, "upstream evidence does not name its kernel");
            }
            _ => {}
        }
    }

    fn sources(&mut self, root: &Node, overlay: &Overlay) {
        for (id, source) in &overlay.sources {
            if source.title.is_empty() {
                let span = root.pointer(&format!("/sources/{id}/title")).map_or(0..0, |title| title.span.clone());
                self.add("empty-value", &span, "`title` must not be empty");
            }
            let lacking = source.lacks();
            if !lacking.is_empty() {
                let span = root.key_span(&format!("/sources/{id}")).unwrap_or(0..0);
                let what = format!("the measurement `{id}` does not give its {}", lacking.join(", "));
                self.add("incomplete-measurement", &span, what);
            }
        }
    }
}
