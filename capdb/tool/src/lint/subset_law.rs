use std::collections::{BTreeMap, BTreeSet};

use capdb::load::{FileKind, Loaded};
use capdb::problem::Problem;
use capdb::record::Support;
use capdb::yaml::Node;

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "subset-law",
    about: "Along base-target edges of `compiles_for` every portable feature is kept; and a machine of the same line that has them all is on the list.",
    check: Check::Tree(check),
};

/// A record as the law sees it.
struct Machine<'a> {
    loaded: &'a Loaded,
    root: &'a Node,
    /// Portable features that code may rely on.
    features: BTreeSet<String>,
    /// Records that run its base target.
    runs_on: BTreeSet<&'a str>,
}

/// Records that are joined by edges in any direction.
type Line<'a> = BTreeMap<&'a str, Machine<'a>>;

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    if tree.single(FileKind::Vocab).is_none() {
        return;
    }
    for line in lines(tree) {
        for (id, machine) in &line {
            kept(id, machine, &line, problems);
            listed(id, machine, &line, problems);
        }
    }
}

/// Every line with more than one record: a record alone obeys the law.
fn lines<'a>(tree: &Tree<'a>) -> Vec<Line<'a>> {
    let mut machines: Line<'a> = BTreeMap::new();
    for (loaded, root) in tree.of_kind(FileKind::Arch) {
        let Some(id) = root.get("id").and_then(Node::text) else { continue };
        let runs_on = base_targets(root).flat_map(|(_, list)| list.items()).filter_map(Node::text).collect();
        machines.insert(id, Machine { loaded, root, features: BTreeSet::new(), runs_on });
    }
    let mut neighbours: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, machine) in &machines {
        for other in machine.runs_on.iter().filter(|other| *other != id && machines.contains_key(*other)) {
            neighbours.entry(id).or_default().push(other);
            neighbours.entry(other).or_default().push(id);
        }
    }
    let mut lines = Vec::new();
    while let Some(start) = neighbours.keys().next().copied() {
        let mut line = Line::new();
        let mut open = vec![start];
        while let Some(id) = open.pop() {
            open.extend(neighbours.remove(id).unwrap_or_default());
            if let (Some(machine), Some(features)) = (machines.remove(id), features(tree, id)) {
                line.insert(id, Machine { features, ..machine });
            }
        }
        lines.push(line);
    }
    lines
}

/// Portable features of a record that code may rely on; `None` if its parents are broken, which is reported elsewhere.
fn features(tree: &Tree<'_>, id: &str) -> Option<BTreeSet<String>> {
    let portable = |word: &str| tree.index().vocab.features.get(word).is_some_and(|feature| feature.portable);
    let relied = |support: &Support| matches!(support, Support::Native | Support::Emulated);
    let all = tree.resolve(id)?.features().unwrap_or_default();
    Some(all.into_iter().filter(|(word, support)| portable(word) && relied(support)).map(|(word, _)| word).collect())
}

/// Targets without the suffix `a` or `f`: code for them promises nothing beyond portable features.
fn base_targets(root: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = root.get("compiles_for").map(Node::entries).unwrap_or_default();
    entries
        .iter()
        .filter(|entry| entry.key.ends_with(|c: char| c.is_ascii_digit()))
        .map(|entry| (entry.key.as_str(), &entry.value))
}

/// Forward: who runs the code has its features.
fn kept(id: &str, machine: &Machine<'_>, line: &Line<'_>, problems: &mut Vec<Problem>) {
    for (target, list) in base_targets(machine.root) {
        for item in list.items() {
            let Some(other) = item.text().and_then(|other| line.get(other)) else { continue };
            let lost: Vec<&str> = machine.features.difference(&other.features).map(String::as_str).collect();
            if !lost.is_empty() {
                let name = item.text().unwrap_or_default();
                let message = format!("{name} is said to run {target}, and lacks {}", lost.join(", "));
                problems.push(
                    Problem::error(LINT.name, &machine.loaded.file.path, item.span.clone(), message)
                        .label(format!("{id} has it"))
                        .hint("take the edge away, or fix the features of one of the two records"),
                );
            }
        }
    }
}

/// Backward: who has all the features, in the same line, runs the code.
fn listed(id: &str, machine: &Machine<'_>, line: &Line<'_>, problems: &mut Vec<Problem>) {
    for (other_id, other) in line.iter().filter(|(other, _)| **other != id && !machine.runs_on.contains(*other)) {
        // Equal sets need one edge, in either direction.
        let excused = machine.features == other.features && (other.runs_on.contains(id) || *other_id < id);
        if !machine.features.is_subset(&other.features) || excused {
            continue;
        }
        let target = base_targets(machine.root).next().map(|(target, _)| target);
        let place = target.and_then(|target| machine.root.key_span(&format!("/compiles_for/{target}")));
        let place = place.or_else(|| machine.root.key_span("/id")).unwrap_or(0..0);
        let message = format!("{other_id} has every portable feature of {id}, and is not said to run its code");
        problems.push(
            Problem::error(LINT.name, &machine.loaded.file.path, place, message)
                .label("not on this list")
                .hint(format!("add {other_id} to the list, or give {id} the feature that {other_id} lacks")),
        );
    }
}
