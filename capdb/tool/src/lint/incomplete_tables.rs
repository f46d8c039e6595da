use capdb::load::FileKind;
use capdb::problem::Problem;
use serde_json::Value;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "incomplete-tables",
    about: "An architecture with a row in one table of all-reduce has one in each, fusions included; the same for features.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if subject.kind != FileKind::Arch || subject.tree.single(FileKind::Vocab).is_none() {
        return;
    }
    let Some(resolved) = subject.resolved() else { return };
    let vocab = &subject.tree.index().vocab;
    let blocks = ["symmetric_memory", "one_shot", "two_shot", "multimem"].map(|name| format!("/allreduce/{name}"));
    let fusions = vocab.fusions.keys().map(|word| format!("/fusions/{word}"));
    let collectives: Vec<String> = blocks.into_iter().chain(fusions).collect();
    let features: Vec<String> = vocab.features.keys().map(|word| format!("/features/{word}")).collect();
    for tables in [collectives, features] {
        let (present, missing): (Vec<&String>, Vec<&String>) =
            tables.iter().partition(|pointer| !matches!(resolved.value.pointer(pointer), None | Some(Value::Null)));
        if !present.is_empty() && !missing.is_empty() {
            problems.push(gap(subject, present.len(), tables.len(), &missing));
        }
    }
}

fn gap(subject: &Subject<'_>, present: usize, all: usize, missing: &[&String]) -> Problem {
    let missing: Vec<String> = missing.iter().map(|pointer| pointer[1..].replace('/', ".")).collect();
    let message =
        format!("{} has a row in {present} of {all} tables, and none in {}", subject.id(), missing.join(", "));
    subject.error(LINT.name, subject.span("/id"), message).hint(
        "add the rows; `support: absent` or `world_sizes: []` with evidence says that there is nothing, where silence \
         would be taken for a gap",
    )
}
