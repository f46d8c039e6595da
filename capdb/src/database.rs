//! A database that can be asked: from a folder, or the copy that is compiled into the program.

use std::path::Path;

use crate::assembly::{Assembly, Index};
use crate::load::{self, Loaded, TextFile};
use crate::problem::{Problem, Severity};
use crate::resolve::{Layer, LayerKind, RecordError, Resolved};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read the database in {path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    /// `capdb validate` shows all of them with their places.
    #[error("the database has {} error(s), the first: {}; `capdb validate` shows them all", .0.len(), load::first_error(.0))]
    Invalid(Vec<Problem>),
}

/// Why a record cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    #[error("there is no record `{id}`; known are {}", .known.join(", "))]
    Unknown { id: String, known: Vec<String> },
    #[error("record `{id}`: {failure}")]
    Broken { id: String, failure: String },
}

/// A database.
#[derive(Debug)]
pub struct Database {
    index: Index,
    /// `None` for the compiled copy.
    files: Option<Assembly>,
    overlay: Option<Box<Loaded>>,
}

impl Database {
    /// The copy that is compiled into the program, resolved ahead of time.
    pub fn embedded() -> Self {
        let index = serde_json::from_str(embedded::INDEX).expect("the build wrote the index with the same types");
        Self { index, files: None, overlay: None }
    }

    /// The YAML texts of the compiled copy.
    pub fn embedded_files() -> Vec<TextFile> {
        let file = |(relative, text): &(&str, &str)| TextFile {
            path: format!("<embedded>/{relative}"),
            relative: (*relative).to_owned(),
            bytes: text.as_bytes().to_vec(),
        };
        embedded::FILES.iter().map(file).collect()
    }

    /// A folder in the form of `capdb/data`.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let files =
            load::folder(folder).map_err(|cause| OpenError::Io { path: folder.display().to_string(), cause })?;
        Self::from_files(files)
    }

    /// Files in memory.
    pub fn from_files(files: Vec<TextFile>) -> Result<Self, OpenError> {
        let (assembly, problems) = Assembly::new(files.into_iter().map(Loaded::read).collect());
        let errors: Vec<Problem> = problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect();
        if errors.is_empty() {
            Ok(Self { index: assembly.index.clone(), files: Some(assembly), overlay: None })
        } else {
            Err(OpenError::Invalid(errors))
        }
    }

    /// Lays a site overlay over every record that it applies to.
    pub fn with_overlay(mut self, file: TextFile) -> Result<Self, OpenError> {
        let mut loaded = Loaded::read(file);
        let problems = std::mem::take(&mut loaded.document.problems);
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(OpenError::Invalid(problems));
        }
        crate::typed::read::<crate::record::Overlay>(&mut loaded)
            .map_err(|problem| OpenError::Invalid(vec![problem]))?;
        self.overlay = Some(Box::new(loaded));
        Ok(self)
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// A product's or an architecture's record, by id or alias.
    pub fn record(&self, name: &str) -> Result<Resolved, LookupError> {
        let id = self
            .index
            .id_of(name)
            .ok_or_else(|| LookupError::Unknown { id: name.to_owned(), known: self.index.ids() })?;
        let broken = |failure: String| LookupError::Broken { id: id.to_owned(), failure };
        let mut resolved = match &self.files {
            Some(assembly) => assembly.resolve(id).map_err(|failure| broken(failure.to_string()))?,
            None => {
                let text = embedded::RECORDS.iter().find(|(record, _)| *record == id).map_or("{}", |(_, text)| text);
                serde_json::from_str(text).map_err(|error| broken(error.to_string()))?
            }
        };
        self.lay_overlay(&mut resolved);
        check(&resolved).map_err(|error| broken(error.to_string()))?;
        Ok(resolved)
    }

    fn lay_overlay(&self, resolved: &mut Resolved) {
        let Some((loaded, node)) = self.overlay.as_ref().and_then(|loaded| Some((loaded, loaded.root()?))) else {
            return;
        };
        let target = node.get("applies_to").and_then(|node| node.text());
        if target != Some(resolved.id.as_str()) && target != resolved.arch.as_deref() {
            return;
        }
        let mut node = node.clone();
        for key in ["applies_to", "fingerprint", "schema"] {
            node.remove(&format!("/{key}"));
        }
        resolved.apply(&Layer {
            kind: LayerKind::Overlay,
            id: "overlay",
            file: &loaded.file.path,
            bytes: &loaded.file.bytes,
            node: &node,
        });
    }
}

/// Every part of a merged record has the form that its type gives.
fn check(resolved: &Resolved) -> Result<(), RecordError> {
    resolved.allreduce()?;
    resolved.fusions()?;
    resolved.features()?;
    resolved.compile()?;
    resolved.limits()?;
    resolved.speculative().map(drop)
}
