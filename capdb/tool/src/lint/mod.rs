//! Lints: laws of the data that no schema can say. One file each; `LINTS` is the list.
//!
//! A lint looks only at files that the schema accepts, and reports each fault once, where it can be fixed.

mod case_ids;
mod case_records;
mod compile_edges;
mod device_names;
mod duplicate_record;
mod equals_parent;
mod evidence_key;
mod id_stem;
mod incomplete_tables;
mod inherited_by_author;
mod ladder_order;
mod limit_above_cap;
mod measurement;
mod missing_evidence;
mod order_lists;
mod patch_records;
mod place;
mod source_kind;
mod stack_records;
mod subset_law;
mod tree;
mod uncovered_cells;
mod unknown_source;
mod unknown_word;
mod unused_source;
mod vocabulary;

use capdb::load::Loaded;
use capdb::problem::Problem;

pub use place::Subject;
pub use tree::Tree;

use crate::validate::parallel;

/// One lint.
pub struct Lint {
    /// Also the code of its findings.
    pub name: &'static str,
    /// One line for `capdb validate --list-lints`.
    pub about: &'static str,
    check: Check,
}

/// What a lint looks at.
enum Check {
    /// One file of a record.
    Record(fn(&Subject<'_>, &mut Vec<Problem>)),
    /// The database as a whole.
    Tree(fn(&Tree<'_>, &mut Vec<Problem>)),
}

impl Lint {
    /// `record` or `tree`.
    pub const fn scope(&self) -> &'static str {
        match self.check {
            Check::Record(_) => "record",
            Check::Tree(_) => "tree",
        }
    }
}

/// Every lint, by name.
pub static LINTS: &[&Lint] = &[
    &case_ids::LINT,
    &case_records::LINT,
    &compile_edges::LINT,
    &device_names::LINT,
    &duplicate_record::LINT,
    &equals_parent::LINT,
    &evidence_key::LINT,
    &id_stem::LINT,
    &incomplete_tables::LINT,
    &inherited_by_author::LINT,
    &ladder_order::LINT,
    &limit_above_cap::LINT,
    &measurement::LINT,
    &missing_evidence::LINT,
    &order_lists::LINT,
    &patch_records::LINT,
    &source_kind::LINT,
    &stack_records::LINT,
    &subset_law::LINT,
    &uncovered_cells::LINT,
    &unknown_source::LINT,
    &unknown_word::LINT,
    &unused_source::LINT,
    &vocabulary::LINT,
];

/// Runs every lint.
pub fn run(tree: &Tree<'_>) -> Vec<Problem> {
    let files: Vec<&Loaded> = tree.files().collect();
    let of_records = parallel(files, |loaded| {
        let mut problems = Vec::new();
        if let Some(subject) = Subject::new(tree, loaded) {
            for lint in LINTS {
                if let Check::Record(check) = lint.check {
                    check(&subject, &mut problems);
                }
            }
        }
        problems
    });
    let mut problems: Vec<Problem> = of_records.into_iter().flatten().collect();
    for lint in LINTS {
        if let Check::Tree(check) = lint.check {
            check(tree, &mut problems);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::LINTS;

    /// The page of the book is written from the list; `UPDATE=1 cargo test` writes it again.
    #[test]
    fn the_book_lists_every_lint() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/lints.md");
        let mut page = String::from(
            "# Lints\n\nLaws of the data that no schema can say. A lint looks only at files that the schema accepts.\n\n",
        );
        page.push_str("| lint | looks at | law |\n|---|---|---|\n");
        for lint in LINTS {
            page.push_str(&format!("| `{}` | {} | {} |\n", lint.name, lint.scope(), lint.about.replace('|', "\\|")));
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "run `UPDATE=1 cargo test -p capdb-tool`");
    }

    #[test]
    fn names_are_unique_and_say_a_sentence() {
        let mut names: Vec<&str> = LINTS.iter().map(|lint| lint.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LINTS.len());
        assert!(LINTS.iter().all(|lint| lint.about.ends_with('.')));
    }
}
