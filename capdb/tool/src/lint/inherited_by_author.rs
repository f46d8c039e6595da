use capdb::blocks::evidence;
use capdb::load::FileKind;
use capdb::problem::Problem;

use super::{Check, Lint, Subject};

pub static LINT: Lint = Lint {
    name: "inherited-by-author",
    about: "`inherited` is written by the resolver, never by an author: leave the value out and it is inherited.",
    check: Check::Record(check),
};

fn check(subject: &Subject<'_>, problems: &mut Vec<Problem>) {
    // The `record` of a case is made up, its evidence too.
    if subject.kind == FileKind::Cases {
        return;
    }
    let mut found = Vec::new();
    evidence(subject.root, &mut found);
    for kind in found.into_iter().filter_map(|node| node.get("kind")) {
        if kind.text() == Some("inherited") {
            problems.push(
                subject
                    .error(LINT.name, kind.span.clone(), "an author does not write `inherited`")
                    .hint("leave the values out and let `extends` bring them; or say `guessed` and why"),
            );
        }
    }
}
