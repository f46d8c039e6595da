use capdb::assembly::normalise;
use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "compile-edges",
    about: "Compile targets are the record's own; `compiles_for` is keyed by them and names known records, itself among them.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if subject.kind != FileKind::Arch {
        return;
    }
    let targets = subject.root.pointer("/compile/targets").map(Node::items).unwrap_or_default();
    own_targets(subject, targets, problems);
    let targets: Vec<&str> = targets.iter().filter_map(Node::text).collect();
    for entry in subject.root.get("compiles_for").map(Node::entries).unwrap_or_default() {
        if !targets.contains(&entry.key.as_str()) {
            let message = format!("`{}` is not a target of this record", entry.key);
            let hint = suggest::hint(&entry.key, &targets).0;
            problems.push(subject.error(LINT.name, entry.key_span.clone(), message).hint(hint));
        }
        known_records(subject, &entry.value, problems);
        if !entry.value.items().iter().any(|item| item.text() == Some(subject.id())) {
            let message = format!("{} is not said to run its own target `{}`", subject.id(), entry.key);
            problems.push(subject.error(LINT.name, entry.key_span.clone(), message).hint("add it to the list"));
        }
    }
}

/// `sm_120a` belongs to the record with the capability "12.0" or an alias of it.
fn own_targets(subject: &Subject<'_>, targets: &[Node], problems: &mut Vec<Problem>) {
    let aliases = subject.root.get("aliases").map(Node::items).unwrap_or_default();
    let own: Vec<String> = aliases
        .iter()
        .filter_map(|alias| alias.get("name"))
        .chain(subject.root.get("compute_capability"))
        .filter_map(Node::text)
        .map(normalise)
        .collect();
    for target in targets {
        let word = target.text().unwrap_or_default();
        if !own.contains(&normalise(word.trim_end_matches(['a', 'f']))) {
            let message = format!("`{word}` is a target of another architecture");
            problems.push(
                subject
                    .error(LINT.name, target.span.clone(), message)
                    .hint("name this record's own targets here; `compiles_for` says which machines run them"),
            );
        }
    }
}

fn known_records(subject: &Subject<'_>, list: &Node, problems: &mut Vec<Problem>) {
    let known: Vec<&str> = subject.tree.index().archs.keys().map(String::as_str).collect();
    for item in list.items() {
        let word = item.text().unwrap_or_default();
        if !known.contains(&word) && !subject.tree.is_broken(word) {
            let problem = subject.error(LINT.name, item.span.clone(), format!("there is no architecture `{word}`"));
            problems.push(problem.hint(suggest::hint(word, &known).0));
        }
    }
}
