use std::collections::HashSet;

use capdb::blocks::cites;
use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::yaml::Node;

use super::unknown_source::superseding;
use super::{Check, Lint, Tree};

pub static LINT: Lint = Lint {
    name: "unused-source",
    about: "A source that nothing cites is a leftover, unless a newer one supersedes it (warning).",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let Some((sources, root)) = tree.single(FileKind::Sources).filter(|_| tree.is_sound()) else { return };
    let mut cited = Vec::new();
    for loaded in tree.files() {
        if let Some(root) = loaded.root() {
            cites(root, &mut cited);
        }
    }
    superseding(root, &mut cited);
    let mut used: HashSet<&str> = cited.into_iter().filter_map(Node::text).collect();
    // Notes may name further sources, since evidence has room for one.
    let texts: Vec<&str> = tree.files().filter_map(|loaded| std::str::from_utf8(&loaded.file.bytes).ok()).collect();
    for entry in root.get("sources").map(Node::entries).unwrap_or_default() {
        let key = entry.key.as_str();
        let superseded = entry.value.get("superseded_by").is_some();
        if used.contains(key) || superseded {
            continue;
        }
        let mentions: usize = texts.iter().map(|text| mentions(text, key)).sum();
        if mentions > 1 {
            used.insert(key);
            continue;
        }
        let message = format!("nothing cites the source `{key}`");
        problems.push(
            Problem::warning(LINT.name, &sources.file.path, entry.key_span.clone(), message)
                .hint("cite it where it was used; or name its successor with `superseded_by`"),
        );
    }
}

/// How often a word stands in a text, not as part of a longer id.
fn mentions(text: &str, word: &str) -> usize {
    let part_of_id = |c: char| c.is_alphanumeric() || c == '-';
    text.match_indices(word)
        .filter(|(at, _)| {
            let before = text[..*at].chars().next_back();
            let mut after = text[at + word.len()..].chars();
            // A full stop ends a sentence, but joins the parts of a version.
            let follows = match after.next() {
                Some('.') => after.next().is_some_and(part_of_id),
                other => other.is_some_and(part_of_id),
            };
            !before.is_some_and(|c| part_of_id(c) || c == '.') && !follows
        })
        .count()
}
