use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::{Node, NodeKind};

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "case-records",
    about: "A case names a known product, and an unknown architecture only where it expects `arch_entry_missing`.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    if subject.kind != FileKind::Cases {
        return;
    }
    let index = subject.tree.index();
    for case in subject.root.get("cases").map(Node::items).unwrap_or_default() {
        if let Some(node) = case.pointer("/given/gpu") {
            let word = node.text().unwrap_or_default();
            let known: Vec<&str> = index.gpus.keys().map(String::as_str).collect();
            if !known.contains(&word) && !subject.tree.is_broken(word) {
                let problem = subject.error(LINT.name, node.span.clone(), format!("there is no product `{word}`"));
                problems.push(problem.hint(suggest::hint(word, &known).0));
            }
        }
        if let Some(node) = case.pointer("/given/arch") {
            let word = node.text().unwrap_or_default();
            if index.arch_id_of(word).is_none() && !is_meant(case) && !subject.tree.is_broken(word) {
                let known: Vec<&str> = index.archs.keys().map(String::as_str).collect();
                let problem = subject.error(LINT.name, node.span.clone(), format!("there is no architecture `{word}`"));
                let near = suggest::nearest(word, known).map(|near| format!("did you mean `{near}`? "));
                problems.push(problem.hint(format!(
                    "{}a case about an unknown architecture expects the reason `arch_entry_missing`, or brings a `record`",
                    near.unwrap_or_default()
                )));
            }
        }
    }
}

/// Whether a case says that its architecture has no record.
fn is_meant(case: &Node) -> bool {
    let reasons = case.pointer("/expect/reasons").map(Node::items).unwrap_or_default();
    let class_invalid = ["heads_not_divisible", "too_few_gpus"];
    // Where the stack or the world size decides, the record does not.
    case.pointer("/given/record").is_some()
        || case.pointer("/given/world_size").is_some_and(|node| node.kind == NodeKind::Integer(1))
        || case.pointer("/given/request/allreduce").and_then(Node::text) == Some("nccl")
        || reasons.iter().filter_map(Node::text).any(|word| word.ends_with("_too_old") || word == "no_benefit")
        || reasons
            .iter()
            .filter_map(Node::text)
            .any(|word| word == "arch_entry_missing" || class_invalid.contains(&word))
}
