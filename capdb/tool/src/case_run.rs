//! Running decision cases.

use std::fmt::Write as _;
use std::path::Path;

use capdb::cases::{self, Outcome};
use capdb::database::Database;
use capdb::load::{FileKind, Loaded, SchemaVersion, TextFile};
use capdb::problem::Problem;
use serde_json::{Value, json};

use crate::diagnostics::Sources;
use crate::validate::{InputError, files_of};

/// Files of cases.
#[derive(Clone, Debug)]
pub struct Selection {
    files: Vec<TextFile>,
}

impl Selection {
    /// The cases of a database.
    pub fn database(files: Vec<TextFile>) -> Self {
        Self { files: files.into_iter().filter(|file| FileKind::of(&file.relative) == Some(FileKind::Cases)).collect() }
    }

    /// Every YAML file below a folder, or one file.
    pub fn path(path: &Path) -> Result<Self, InputError> {
        Ok(Self { files: files_of(path)? })
    }
}

/// What became of the cases.
#[derive(Debug, Default)]
pub struct CaseResult {
    pub outcomes: Vec<Outcome>,
    /// Files that cannot be read as cases.
    pub problems: Vec<Problem>,
    pub sources: Sources,
}

/// Runs every case of a selection.
pub fn run(database: &Database, selection: Selection) -> CaseResult {
    let mut result = CaseResult::default();
    for file in selection.files {
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        let mut loaded = Loaded::read(file);
        loaded.kind = Some(FileKind::Cases);
        let outcome = match unreadable(&loaded) {
            Some(problem) => Err(vec![problem]),
            None => cases::run(database, &mut loaded),
        };
        match outcome {
            Ok(outcomes) => result.outcomes.extend(outcomes),
            Err(problems) => {
                result.problems.extend(problems);
                result.sources.insert(&loaded.file.path, text);
            }
        }
    }
    result
}

/// A file of another schema, or of a version that this program does not read.
fn unreadable(loaded: &Loaded) -> Option<Problem> {
    let node = loaded.root()?.get("schema")?;
    let word = node.text().unwrap_or_default();
    match SchemaVersion::of(FileKind::Cases, word) {
        SchemaVersion::Known | SchemaVersion::NewerMinor => None,
        _ => {
            let message = format!("`{word}` is not a schema of cases that this program reads");
            Some(
                Problem::error("schema-unreadable", &loaded.file.path, node.span.clone(), message)
                    .hint("files of cases begin with `schema: cases/1`"),
            )
        }
    }
}

impl CaseResult {
    pub fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).count()
    }

    pub fn passed(&self) -> usize {
        self.outcomes.len() - self.failed()
    }

    /// One line for each failure, then the counts.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.failures.is_empty()) {
            let Outcome { id, path, line, failures } = outcome;
            let _ = writeln!(text, "FAILED {path}:{line} {id}: {}", failures.join("; "));
        }
        let _ = writeln!(text, "{} passed, {} failed", self.passed(), self.failed());
        text
    }

    pub fn to_json(&self) -> Value {
        let failures: Vec<Value> = self
            .outcomes
            .iter()
            .filter(|outcome| !outcome.failures.is_empty())
            .map(|outcome| {
                json!({"id": outcome.id, "path": outcome.path, "line": outcome.line, "failures": outcome.failures})
            })
            .collect();
        json!({"passed": self.passed(), "failed": self.failed(), "failures": failures})
    }
}
