use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "unknown-vocabulary",
    about: "Features, fusions, attention kernels and weight formats are words of vocab.yaml.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if !(subject.is_record() || subject.kind == FileKind::Overlay) || subject.tree.single(FileKind::Vocab).is_none() {
        return;
    }
    let vocab = &subject.tree.index().vocab;
    let features: Vec<&str> = vocab.features.keys().map(String::as_str).collect();
    for (group, known) in [
        ("features", features.clone()),
        ("fusions", vocab.fusions.keys().map(String::as_str).collect()),
        ("attention", vocab.attention.keys().map(String::as_str).collect()),
        ("quantization", vocab.quantization.keys().map(String::as_str).collect()),
    ] {
        for entry in subject.root.get(group).map(Node::entries).unwrap_or_default() {
            word(subject, group, &entry.key, entry.key_span.clone(), &known, problems);
        }
    }
    for algorithm in ["one_shot", "two_shot", "multimem"] {
        let required = subject.root.pointer(&format!("/allreduce/{algorithm}/requires"));
        for item in required.map(Node::items).unwrap_or_default() {
            word(subject, "features", item.text().unwrap_or_default(), item.span.clone(), &features, problems);
        }
    }
}

fn word(
    subject: &Subject<'_>,
    group: &str,
    word: &str,
    span: std::ops::Range<usize>,
    known: &[&str],
    problems: &mut Vec<Problem>,
) {
    if known.contains(&word) {
        return;
    }
    let (hint, near) = suggest::hint(word, known);
    let problem = subject.error(LINT.name, span, format!("`{word}` is not a word of {group} in vocab.yaml")).hint(hint);
    problems.push(match near {
        Some(near) => problem.fix(near),
        None => problem,
    });
}
