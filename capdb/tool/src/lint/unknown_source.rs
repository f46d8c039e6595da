use capdb::blocks::cites;
use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "unknown-source",
    about: "Every `source` names an entry of sources.yaml; an overlay may bring sources of its own.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if subject.tree.single(FileKind::Sources).is_none() {
        return;
    }
    let mut cited = Vec::new();
    match subject.kind {
        FileKind::Sources => superseding(subject.root, &mut cited),
        FileKind::Manifest | FileKind::Vocab | FileKind::Order | FileKind::Cases => {}
        _ => cites(subject.root, &mut cited),
    }
    let own = subject.own_sources();
    let known = || subject.tree.index().sources.sources.keys().chain(own.keys());
    for node in cited {
        let word = node.text().unwrap_or_default();
        if known().any(|id| id == word) {
            continue;
        }
        let candidates: Vec<&str> = known().map(String::as_str).collect();
        let problem = subject.error(LINT.name, node.span.clone(), format!("there is no source `{word}`"));
        problems.push(match suggest::nearest(word, candidates) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")).fix(near),
            None => problem.hint("add it to sources.yaml: what it is, its version and path, and when it was read"),
        });
    }
}

/// Every `superseded_by` of sources.yaml.
pub fn superseding<'a>(root: &'a Node, found: &mut Vec<&'a Node>) {
    let sources = root.get("sources").map(Node::entries).unwrap_or_default();
    found.extend(sources.iter().filter_map(|entry| entry.value.get("superseded_by")));
}
