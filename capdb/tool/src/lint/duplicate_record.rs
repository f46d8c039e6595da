use std::collections::HashMap;
use std::ops::Range;

use capdb::assembly::normalise;
use capdb::load::{FileKind, Loaded};
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "duplicate-record",
    // Equal ids are found when the files are read.
    about: "No two records share an id, a compute capability or an alias, in any spelling (\"12.0\", sm_120, sm120).",
    check: Check::Tree(check),
};

/// A name and where it stands.
type Seen<'a> = HashMap<String, (&'a Loaded, Range<usize>, String)>;

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let mut archs = Seen::new();
    for (loaded, root) in tree.of_kind(FileKind::Arch) {
        let id = root.get("id").and_then(Node::text).unwrap_or_default();
        if tree.index().archs.get(id).is_some_and(|entry| entry.file != loaded.file.relative) {
            continue;
        }
        let mut own = Vec::new();
        for node in [root.get("id"), root.get("compute_capability")].into_iter().flatten() {
            own.push(node);
        }
        own.extend(
            root.get("aliases").map(Node::items).unwrap_or_default().iter().filter_map(|alias| alias.get("name")),
        );
        for node in own {
            claim(&mut archs, loaded, id, node, problems);
        }
    }
    let mut gpus = Seen::new();
    for (loaded, root) in tree.of_kind(FileKind::Gpu) {
        if let Some(node) = root.get("id") {
            claim(&mut gpus, loaded, node.text().unwrap_or_default(), node, problems);
            if let Some((other, span, _)) = archs.get(&normalise(node.text().unwrap_or_default())) {
                problems.push(problem(loaded, node, other, span));
            }
        }
    }
}

/// Takes a name for a record. A record may spell its own name in several ways.
fn claim<'a>(seen: &mut Seen<'a>, loaded: &'a Loaded, id: &str, node: &Node, problems: &mut Vec<Problem>) {
    let name = normalise(node.text().unwrap_or_default());
    match seen.get(&name) {
        Some((other, _, owner)) if std::ptr::eq(*other, loaded) && owner == id => {}
        Some((other, span, _)) => problems.push(problem(loaded, node, other, span)),
        None => {
            seen.insert(name, (loaded, node.span.clone(), id.to_owned()));
        }
    }
}

fn problem(loaded: &Loaded, node: &Node, other: &Loaded, span: &Range<usize>) -> Problem {
    let word = node.text().unwrap_or_default();
    Problem::error(
        LINT.name,
        &loaded.file.path,
        node.span.clone(),
        format!("`{word}` belongs to another record already"),
    )
    .label("a second time")
    .hint("one architecture has one record; add to that one, or choose another name")
    .related(Some(other.file.path.clone()), span.clone(), "first here")
}
