//! Patch records of a database.

use capdb::load::{FileKind, Loaded, TextFile};
use capdb::problem::Severity;
use capdb::record::{PatchGate, PatchProject, PatchRecord};
use capdb::typed;

/// Why the records cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    #[error("{path}: {message}; `capdb validate` shows the place")]
    Invalid { path: String, message: String },
}

/// The patch records among files of a database, for one project or all.
pub fn records(files: Vec<TextFile>, project: Option<PatchProject>) -> Result<Vec<PatchRecord>, RecordsError> {
    let mut records = Vec::new();
    for file in files.into_iter().filter(|file| FileKind::of(&file.relative) == Some(FileKind::Patch)) {
        let path = file.path.clone();
        let mut loaded = Loaded::read(file);
        if let Some(problem) = loaded.document.problems.iter().find(|problem| problem.severity == Severity::Error) {
            return Err(RecordsError::Invalid { path, message: problem.message.clone() });
        }
        let (record, _) = typed::read::<PatchRecord>(&mut loaded)
            .map_err(|problem| RecordsError::Invalid { path: path.clone(), message: problem.message })?;
        if let Some((_, message)) = fault(&record) {
            return Err(RecordsError::Invalid { path, message });
        }
        if project.is_none_or(|project| project == record.project) {
            records.push(record);
        }
    }
    Ok(records)
}

/// What no schema can say about a single record: the key that is at fault, and why.
pub fn fault(record: &PatchRecord) -> Option<(&'static str, String)> {
    if record.table.is_some() == record.gate.is_some() {
        return Some(("id", "a place is either a `table` or a `gate`".to_owned()));
    }
    if record.gate.as_ref().is_some_and(|gate| !is_whole(gate)) {
        return Some(("gate", "a gate has either `terms` with `majors`, or `calls` with `function`".to_owned()));
    }
    let outside = |version: &&String| !version.parse().is_ok_and(|version| record.versions.matches(&version));
    let version = record.read_in.iter().find(outside)?;
    Some(("read_in", format!("it was read in {version}, which `{}` does not cover", record.versions)))
}

/// Whether a gate has what one of its two forms needs, and nothing of the other.
fn is_whole(gate: &PatchGate) -> bool {
    let names = !gate.terms.is_empty() && gate.majors.is_some();
    let calls = !gate.calls.is_empty() && gate.function.is_some();
    let mixed = (names && !gate.calls.is_empty()) || (calls && !gate.terms.is_empty());
    (names || calls) && !mixed
}
