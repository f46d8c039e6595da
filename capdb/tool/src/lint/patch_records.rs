use capdb::load::FileKind;
use capdb::problem::Problem;
use capdb::record::PatchRecord;

use super::{Check, Lint, Tree};
use crate::patch::fault;

pub static LINT: Lint = Lint {
    name: "patch-records",
    about: "A place in another project's source is one table or one whole gate, read in releases of its own range; what comes before it is a table of that project.",
    check: Check::Tree(check),
};

fn check(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    let files: Vec<_> = tree.of_kind(FileKind::Patch).collect();
    // What cannot be read as a record is reported elsewhere.
    let records: Vec<(_, _, PatchRecord)> = files
        .into_iter()
        .filter_map(|(loaded, root)| Some((loaded, root, serde_json::from_value(root.to_json()).ok()?)))
        .collect();
    for (loaded, root, record) in &records {
        let mut report = |key: &str, message: String, hint: &str| {
            let span = root.key_span(&format!("/{key}")).unwrap_or(0..0);
            problems.push(Problem::error(LINT.name, &loaded.file.path, span, message).hint(hint));
        };
        if let Some((key, message)) = fault(record) {
            report(key, message, "the form is `PatchRecord` in schemas/patch; other records show it");
        }
        let Some(first) = record.table.as_ref().and_then(|table| table.reached_after.as_ref()) else { continue };
        let known = |(.., other): &(_, _, PatchRecord)| {
            other.id == *first && other.id != record.id && other.project == record.project && other.table.is_some()
        };
        if !records.iter().any(known) && !tree.is_broken(first) {
            let message = format!("`{first}` is no other table of {}", record.project);
            report(
                "table/reached_after",
                message,
                "name the record whose row must be there first, or leave the key out",
            );
        }
    }
}
