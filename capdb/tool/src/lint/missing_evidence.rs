use capdb::load::FileKind;
use capdb::problem::Problem;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "missing-evidence",
    about: "Every value that affects a decision has evidence, on its block or in `evidence_for`.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if !(subject.is_record() || subject.kind == FileKind::Overlay) {
        return;
    }
    for block in subject.blocks() {
        let without = block.without_evidence();
        if !without.is_empty() {
            let message = format!("{} has values without evidence", block.pointer[1..].replace('/', "."));
            problems.push(missing(subject, &block.pointer, message).label(without.join(", ")));
        }
    }
    if subject.root.get("features").is_some() && subject.root.get("features_evidence").is_none() {
        problems.push(missing(subject, "/features", "`features` stands without `features_evidence`".into()));
    }
    let described = ["memory", "memory_bandwidth", "multiprocessors", "l2_cache", "links"];
    if subject.kind == FileKind::Gpu
        && subject.root.get("evidence").is_none()
        && let Some(key) = described.iter().find(|key| subject.root.get(key).is_some())
    {
        problems.push(missing(subject, &format!("/{key}"), "the product is described without evidence".into()));
    }
}

fn missing(subject: &Subject<'_>, pointer: &str, message: String) -> Problem {
    subject.error(LINT.name, subject.key_span(pointer), message).hint(
        "say where it comes from: `evidence: {kind: …, source: …}`; `guessed` is an honest answer, and every decision \
         that rests on it says so",
    )
}
