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
    #[error("{path}: a patch record has either a `table` or a `gate`")]
    NotOne { path: String },
    #[error("{path}: a gate has either `terms` with `majors`, or `calls` with `function`")]
    Gate { path: String },
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
        if record.table.is_some() == record.gate.is_some() {
            return Err(RecordsError::NotOne { path });
        }
        if record.gate.as_ref().is_some_and(|gate| !is_whole(gate)) {
            return Err(RecordsError::Gate { path });
        }
        if project.is_none_or(|project| project == record.project) {
            records.push(record);
        }
    }
    Ok(records)
}

/// Whether a gate has what one of its two forms needs, and nothing of the other.
fn is_whole(gate: &PatchGate) -> bool {
    let names = !gate.terms.is_empty() && gate.majors.is_some();
    let calls = !gate.calls.is_empty() && gate.function.is_some();
    let mixed = (names && !gate.calls.is_empty()) || (calls && !gate.terms.is_empty());
    (names || calls) && !mixed
}
