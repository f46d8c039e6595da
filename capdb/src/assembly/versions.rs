//! Whether this program reads the files: their schemas, and the reader that the data asks for.

use super::index::Index;
use crate::load::{FileKind, Loaded, SchemaVersion};
use crate::problem::Problem;

/// A file whose `schema:` is missing, or is one that this program does not read.
pub(crate) fn check_schema_words(files: &[Loaded], problems: &mut Vec<Problem>) {
    for loaded in files {
        let (Some(kind), Some(root)) = (loaded.kind, loaded.root()) else { continue };
        let path = &loaded.file.path;
        let Some(node) = root.get("schema") else {
            let problem = Problem::error("schema-missing", path, 0..0, "the file does not name its schema");
            problems.push(problem.hint(format!("begin it with `schema: {}/1`", kind.schema())));
            continue;
        };
        let word = node.text().unwrap_or("");
        let problem = match SchemaVersion::of(kind, word) {
            SchemaVersion::Known | SchemaVersion::NewerMinor => continue,
            SchemaVersion::NewerMajor => Problem::error(
                "schema-of-the-future",
                path,
                node.span.clone(),
                format!("`{word}` is newer than this program, which reads `{}/1`", kind.schema()),
            )
            .hint("update the program"),
            SchemaVersion::OlderMajor => Problem::error(
                "schema-too-old",
                path,
                node.span.clone(),
                format!("`{word}` is older than this program, which reads `{}/1`", kind.schema()),
            )
            .hint("`capdb migrate PATH` lifts it"),
            SchemaVersion::Unreadable => Problem::error(
                "schema-unreadable",
                path,
                node.span.clone(),
                format!("a file in this place has the schema `{}/1`", kind.schema()),
            )
            .fix(format!("{}/1", kind.schema())),
        };
        problems.push(problem);
    }
}

pub(super) fn check_reader(index: &Index, files: &[Loaded], problems: &mut Vec<Problem>) {
    let here = semver::Version::parse(env!("CARGO_PKG_VERSION")).unwrap_or_else(|_| semver::Version::new(0, 0, 0));
    if index.manifest.oldest_reader > here {
        let path = files
            .iter()
            .find(|loaded| loaded.kind == Some(FileKind::Manifest))
            .map_or("MANIFEST.yaml", |loaded| &loaded.file.path);
        let message =
            format!("this data needs a reader of version {} or newer; this is {here}", index.manifest.oldest_reader);
        problems.push(Problem::error("reader-too-old", path, 0..0, message).hint("update the program"));
    }
}
