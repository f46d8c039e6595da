//! The committed schemas: equal to what the types give, and never narrower than before.

use std::io;
use std::path::{Path, PathBuf};

use capdb::files::read_up_to;
use serde_json::Value;

use super::compatible::{Breakage, breakages};
use super::{MAJOR, SCHEMAS, SchemaKind};

/// Something that `capdb schema` has to say about one committed schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: PathBuf,
    pub kind: FindingKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// There is no committed file.
    Missing,
    /// The file is not a schema.
    Unreadable(String),
    /// The types give another text, and it accepts all that the committed one accepts.
    Drift,
    /// A frozen major refuses files that it accepted: it needs a new major version.
    Breaking(Vec<Breakage>),
    /// The file was written.
    Written,
}

impl FindingKind {
    /// What is wrong and what to do, without the path.
    pub fn message(&self) -> String {
        match self {
            Self::Missing => "is missing; `capdb schema --write` writes it".into(),
            Self::Unreadable(error) => format!("cannot be read as a schema: {error}"),
            Self::Drift => {
                "differs from the record types, compatibly; `capdb schema --write` brings it up to date".into()
            }
            Self::Breaking(breakages) => {
                let list: String =
                    breakages.iter().map(|breakage| format!("\n  {}: {}", breakage.place, breakage.what)).collect();
                format!(
                    "is a published major, and the record types refuse files that it accepts; take the change back, \
                     or start version {} with a migration:{list}",
                    MAJOR + 1
                )
            }
            Self::Written => "written".into(),
        }
    }
}

/// Compares the record types with the schemas in `folder`, and with those in `blessed` where given (the ones of the branch
/// that a change is to be merged into).
pub fn check(folder: &Path, blessed: Option<&Path>) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for kind in SCHEMAS {
        findings.extend(compare(kind, &folder.join(kind.path()), true)?);
        if let Some(blessed) = blessed {
            findings.extend(compare(kind, &blessed.join(kind.path()), false)?);
        }
    }
    Ok(findings)
}

/// Writes the schemas that differ. One whose change would break its major is reported and left as it is.
pub fn write(folder: &Path) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for kind in SCHEMAS {
        let path = folder.join(kind.path());
        let Some(mut finding) = compare(kind, &path, true)? else { continue };
        if matches!(finding.kind, FindingKind::Missing | FindingKind::Drift) {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(&path, kind.text())?;
            finding.kind = FindingKind::Written;
        }
        findings.push(finding);
    }
    Ok(findings)
}

/// More than a schema has.
const MOST_BYTES: u64 = 4 << 20;

/// `exact`: the text must be equal, and the file must exist.
fn compare(kind: &SchemaKind, path: &Path, exact: bool) -> io::Result<Option<Finding>> {
    let finding = |kind| Ok(Some(Finding { path: path.to_path_buf(), kind }));
    let text = match read_up_to(path, MOST_BYTES) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if exact { finding(FindingKind::Missing) } else { Ok(None) };
        }
        Err(error) => return Err(error),
    };
    if text == kind.text() {
        return Ok(None);
    }
    let committed: Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(error) => return finding(FindingKind::Unreadable(error.to_string())),
    };
    match breakages(&committed, &kind.generate()) {
        found if !found.is_empty() => finding(FindingKind::Breaking(found)),
        _ if exact => finding(FindingKind::Drift),
        _ => Ok(None),
    }
}
