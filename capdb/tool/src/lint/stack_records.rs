use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::{StackFile, StackRange};
use capdb::yaml::Node;

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "stack-rows",
    about: "Rows of stack.yaml name known architectures and closed ranges that are not upside down; overlays a known record.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    match subject.kind {
        FileKind::Stack => stack(subject, problems),
        FileKind::Overlay => {
            if let Some(node) = subject.root.get("applies_to") {
                known(subject, node, subject.tree.index().ids().iter().map(String::as_str).collect(), problems);
            }
        }
        _ => {}
    }
}

fn stack(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    let archs: Vec<&str> = subject.tree.index().archs.keys().map(String::as_str).collect();
    for row in subject.root.get("known_bad").map(Node::items).unwrap_or_default() {
        for arch in row.get("archs").map(Node::items).unwrap_or_default() {
            known(subject, arch, archs.clone(), problems);
        }
    }
    let Some(stack) = subject.part::<StackFile>("") else { return };
    for (index, row) in stack.known_bad.iter().enumerate() {
        for (key, range) in [("toolkit", &row.toolkit), ("driver", &row.driver), ("nccl", &row.nccl)] {
            let Some(StackRange { from, to }) = range else { continue };
            if from > to {
                let span = subject.span(&format!("/known_bad/{index}/{key}/to"));
                let message = format!("the range goes from {from} down to {to}");
                problems.push(subject.error(LINT.name, span, message).hint("exchange the two ends"));
            }
        }
    }
}

fn known(subject: &Subject<'_>, node: &Node, ids: Vec<&str>, problems: &mut Vec<Problem>) {
    let word = node.text().unwrap_or_default();
    if !ids.contains(&word) && !subject.tree.is_broken(word) {
        let problem = subject.error(LINT.name, node.span.clone(), format!("there is no record `{word}`"));
        problems.push(problem.hint(suggest::hint(word, &ids).0));
    }
}
