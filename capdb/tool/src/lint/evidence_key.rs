use capdb::problem::Problem;

use super::{Check, Lint, Subject};
use crate::validate::suggest;

pub static LINT: Lint = Lint {
    name: "evidence-key",
    about: "Each key of `evidence_for` names a value of its own block, e.g. `max_message.6`.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    for block in subject.blocks() {
        let values: Vec<String> = block.values().into_iter().map(|(path, _)| path).collect();
        for entry in block.strange_keys() {
            let candidates: Vec<&str> = values.iter().map(String::as_str).collect();
            let message = format!("`{}` is not a value of this block", entry.key);
            problems.push(
                subject
                    .error(LINT.name, entry.key_span.clone(), message)
                    .hint(suggest::hint(&entry.key, &candidates).0),
            );
        }
    }
}
