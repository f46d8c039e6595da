//! Tree → record types, with the place of the first thing that does not fit.

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use crate::load::{Loaded, SchemaVersion};
use crate::problem::Problem;

/// Reads a file as `T`. Keys that a newer minor version added are taken out of the tree and reported as warnings.
pub fn read<T: DeserializeOwned>(loaded: &mut Loaded) -> Result<(T, Vec<Problem>), Problem> {
    let path = loaded.file.path.clone();
    let Some(root) = loaded.document.root.as_mut() else {
        return Err(Problem::error("unreadable", &path, 0..0, "the file could not be read"));
    };
    let newer = loaded.kind.is_some_and(|kind| {
        root.get("schema")
            .and_then(|node| node.text())
            .is_some_and(|word| SchemaVersion::of(kind, word) == SchemaVersion::NewerMinor)
    });
    let mut warnings = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(root.to_json()) {
            Ok(value) => return Ok((value, warnings)),
            Err(error) => error,
        };
        let pointer = pointer(error.path());
        let span = root.key_span(&pointer).unwrap_or(0..0);
        let message = error.inner().to_string();
        let unknown = message.starts_with("unknown field");
        if newer && unknown && root.remove(&pointer) {
            let text = format!("{message}; it belongs to a newer schema version and is left out");
            warnings.push(Problem::warning("newer-field", &path, span, text).hint("update the program to use it"));
        } else {
            return Err(Problem::error("wrong-form", &path, span, message));
        }
    }
}

/// `a.b[2].c` → `/a/b/2/c`.
fn pointer(path: &Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => format!("/{variant}"),
            Segment::Unknown => String::new(),
        })
        .collect()
}
