use std::collections::HashMap;

use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "case-ids",
    about: "The id of a decision case is unique in the whole database, so that a failure names one case.",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let mut seen = HashMap::new();
    for (loaded, root) in tree.of_kind(FileKind::Cases) {
        for node in root.get("cases").map(Node::items).unwrap_or_default().iter().filter_map(|case| case.get("id")) {
            let id = node.text().unwrap_or_default();
            if let Some((path, span)) = seen.insert(id, (&loaded.file.path, node.span.clone())) {
                problems.push(
                    Problem::error(
                        LINT.name,
                        &loaded.file.path,
                        node.span.clone(),
                        format!("two cases are named `{id}`"),
                    )
                    .related(Some(path.clone()), span, "the other one")
                    .hint("rename one of them"),
                );
            }
        }
    }
}
