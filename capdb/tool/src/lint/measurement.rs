use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::Source;
use capdb::yaml::Node;
use serde::Deserialize;

use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "incomplete-measurement",
    about: "A source of kind `measurement` says on which GPU, with which driver and when.",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let files = tree.files().filter(|loaded| matches!(loaded.kind, Some(FileKind::Sources | FileKind::Overlay)));
    for (loaded, root) in files.filter_map(|loaded| Some((loaded, loaded.root()?))) {
        sources(&loaded.file.path, root, problems);
    }
}

fn sources(path: &str, root: &Node, problems: &mut Vec<Problem>) {
    for entry in root.get("sources").map(Node::entries).unwrap_or_default() {
        let Ok(source) = Source::deserialize(entry.value.to_json()) else { continue };
        let missing = source.lacks();
        if !missing.is_empty() {
            let message = format!("the measurement `{}` does not give its {}", entry.key, missing.join(", "));
            problems.push(
                Problem::error(LINT.name, path, entry.key_span.clone(), message)
                    .hint("a figure without its machine cannot be checked; if nobody knows, it is a `thread`"),
            );
        }
    }
}
