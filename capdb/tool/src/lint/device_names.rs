use std::collections::HashMap;

use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "device-names",
    about: "No two products claim the same name of the driver.",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let mut seen = HashMap::new();
    for (loaded, root) in tree.of_kind(FileKind::Gpu) {
        for node in root.get("device_names").map(Node::items).unwrap_or_default() {
            let Some(name) = node.text() else { continue };
            if let Some((path, span)) = seen.insert(name, (&loaded.file.path, node.span.clone())) {
                problems.push(
                    Problem::error(
                        LINT.name,
                        &loaded.file.path,
                        node.span.clone(),
                        format!("two products are `{name}`"),
                    )
                    .related(Some(path.clone()), span, "the other one")
                    .hint("the driver's name must lead to one record"),
                );
            }
        }
    }
}
