//! Lifting files of an older major version. A step lifts by one major, as edits of the text, so that comments stay.

mod arch_0;
mod edit;

use capdb::load::{FileKind, Loaded, SchemaVersion, TextFile};
use capdb::problem::Problem;
use capdb::record::ArchRecord;
use capdb::typed;

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifted {
    /// It has the newest major version already.
    Current,
    /// The new text.
    Changed(String),
}

/// Lifts one file to the newest major version.
pub fn lift(file: &TextFile) -> Result<Lifted, Vec<Problem>> {
    let loaded = Loaded::read(file.clone());
    let (Some(root), []) = (loaded.root(), loaded.document.problems.as_slice()) else {
        return Err(loaded.document.problems);
    };
    let path = file.path.as_str();
    let word = root.get("schema").and_then(|node| node.text()).unwrap_or_default();
    let span = root.get("schema").map_or(0..0, |node| node.span.clone());
    let name = word.split('/').next().unwrap_or_default();
    let Some(kind) = FileKind::ALL.iter().copied().find(|kind| kind.schema() == name) else {
        let problem =
            Problem::error("schema-unreadable", path, span, format!("`{word}` is not a schema of the database"));
        return Err(vec![problem.hint("a file begins with `schema: arch/1` or the like")]);
    };
    match SchemaVersion::of(kind, word) {
        SchemaVersion::Known | SchemaVersion::NewerMinor => Ok(Lifted::Current),
        SchemaVersion::OlderMajor if kind == FileKind::Arch => arch(file, &loaded),
        SchemaVersion::OlderMajor => {
            let message = format!("`{word}` was never published, so there is nothing to lift it from");
            Err(vec![Problem::error("schema-unreadable", path, span, message)])
        }
        SchemaVersion::NewerMajor => {
            let message = format!("`{word}` is newer than this program");
            Err(vec![Problem::error("schema-of-the-future", path, span, message).hint("update the program")])
        }
        SchemaVersion::Unreadable => {
            Err(vec![Problem::error("schema-unreadable", path, span, format!("`{word}` has no version"))])
        }
    }
}

/// 0 → 1, and a proof that the result can be read.
fn arch(file: &TextFile, loaded: &Loaded) -> Result<Lifted, Vec<Problem>> {
    let text = arch_0::lift(loaded)?;
    let mut lifted = Loaded::read(TextFile { bytes: text.clone().into_bytes(), ..file.clone() });
    lifted.kind = Some(FileKind::Arch);
    if !lifted.document.problems.is_empty() {
        return Err(lifted.document.problems);
    }
    typed::read::<ArchRecord>(&mut lifted).map_err(|problem| vec![problem])?;
    Ok(Lifted::Changed(text))
}

#[cfg(test)]
mod tests;
