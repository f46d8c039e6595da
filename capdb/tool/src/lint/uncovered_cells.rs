use std::collections::BTreeSet;

use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::{Algorithm, SymmetricMemory};

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "uncovered-cells",
    about: "Every (architecture, world size, algorithm) that a record gives a limit for is spoken of by a decision case (warning).",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if subject.kind != FileKind::Arch || !subject.tree.has_cases() {
        return;
    }
    let Some(allreduce) = subject.resolved().and_then(|resolved| resolved.allreduce().ok()) else { return };
    let blocks =
        [("one_shot", &allreduce.one_shot), ("two_shot", &allreduce.two_shot), ("multimem", &allreduce.multimem)];
    let mut open = Vec::new();
    for (name, block) in blocks {
        let Some(block) = block else { continue };
        let missing: Vec<String> = world_sizes(block, allreduce.symmetric_memory.as_ref())
            .into_iter()
            .filter(|world_size| !subject.tree.covers(subject.id(), u64::from(*world_size), name))
            .map(|world_size| world_size.to_string())
            .collect();
        if !missing.is_empty() {
            open.push(format!("{name} at {} ranks", missing.join(", ")));
        }
    }
    if !open.is_empty() {
        let message = format!("no decision case covers {}", open.join("; "));
        problems.push(
            subject
                .warning(LINT.name, subject.span("/id"), message)
                .hint("add cases that request or expect them; `capdb add-arch` shows the form"),
        );
    }
}

/// World sizes that a block speaks of: its own list, else the keys of its limits, else those of the cap.
fn world_sizes(block: &Algorithm, cap: Option<&SymmetricMemory>) -> BTreeSet<u32> {
    if let Some(listed) = &block.world_sizes {
        return listed.iter().copied().collect();
    }
    let limits = block.max_message.as_ref().or_else(|| cap.and_then(|cap| cap.max_message.as_ref()));
    limits.map(|limits| limits.keys().copied().collect()).unwrap_or_default()
}
