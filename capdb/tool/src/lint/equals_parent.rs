use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::EvidenceKind;
use capdb::resolve::Resolved;
use capdb::yaml::Node;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "equals-parent",
    about: "A guess that equals the parent's value says nothing that inheritance does not say (warning).",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    let parent = match subject.kind {
        FileKind::Arch => subject.root.get("extends"),
        FileKind::Gpu => subject.root.get("arch"),
        _ => None,
    };
    let Some(parent) = parent.and_then(Node::text).and_then(|id| subject.tree.parent(id)) else { return };
    let Some(own) = subject.resolved() else { return };
    for block in subject.blocks() {
        let values = block.values();
        // A list has no identity that a parent's list could be compared with.
        if block.pointer.starts_with("/allreduce/preferred/") || block.pointer == "/compile" || values.is_empty() {
            continue;
        }
        let pointers: Vec<String> =
            values.iter().map(|(path, _)| format!("{}/{}", block.pointer, path.replace('.', "/"))).collect();
        if pointers.iter().all(|pointer| repeats(pointer, own, &parent)) {
            let message = format!("every value of {} equals the parent's", block.pointer[1..].replace('/', "."));
            problems.push(
                subject
                    .warning(LINT.name, subject.key_span(&block.pointer), message)
                    .label(format!("the same as in {}", parent.id))
                    .hint("leave the block out: it is inherited, and marked so; or give it evidence of its own"),
            );
        }
    }
}

/// Whether a value is the parent's, and no better known.
fn repeats(pointer: &str, own: &Resolved, parent: &Resolved) -> bool {
    let guessed = own.origin(pointer).is_some_and(|origin| origin.kind() == EvidenceKind::Guessed);
    guessed && own.value.pointer(pointer).is_some() && own.value.pointer(pointer) == parent.value.pointer(pointer)
}
