use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "evidence-key",
    about: "Each key of `evidence_for` names a value of its own block, e.g. `max_message.6`.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    for block in subject.blocks() {
        let own = block.node.get("evidence_for").map(Node::entries).unwrap_or_default();
        if own.is_empty() {
            continue;
        }
        let values: Vec<String> = block.values().into_iter().map(|(path, _)| path).collect();
        for entry in own.iter().filter(|entry| !values.contains(&entry.key)) {
            let candidates: Vec<&str> = values.iter().map(String::as_str).collect();
            let message = format!("`{}` is no value of this block", entry.key);
            problems.push(
                subject
                    .error(LINT.name, entry.key_span.clone(), message)
                    .hint(suggest::hint(&entry.key, &candidates).0),
            );
        }
    }
}
