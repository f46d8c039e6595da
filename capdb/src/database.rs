//! A database that can be asked: from a folder, or the copy that is compiled into the program.

use std::path::Path;

use crate::assembly::{Assembly, Index};
use crate::load::{self, Loaded, TextFile};
use crate::overlay;
use crate::problem::{Problem, Severity};
use crate::record::Overlay;
use crate::resolve::{Layer, LayerKind, OVERLAY_LAYER, RecordError, Resolved};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Read(#[from] load::ReadError),
    /// `capdb validate` shows all of them with their places.
    #[error("{} error(s), the first: {}; `capdb validate` shows them all, with a path those of one file", .0.len(), load::first_error(.0))]
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
    overlay: Option<Box<Laid>>,
}

/// An overlay as a tree and in its type.
#[derive(Debug)]
struct Laid {
    loaded: Loaded,
    overlay: Overlay,
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
        Self::from_files(load::folder(folder)?)
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

    /// Lays a site overlay over every record that it applies to. Errors: a file that is not an overlay, or one of another
    /// schema, ladders that cannot be followed, evidence that nothing stands behind, a record that does not exist. What
    /// `capdb validate` refuses is refused here: both read by [`overlay::read`].
    pub fn with_overlay(mut self, file: TextFile) -> Result<Self, OpenError> {
        let mut loaded = Loaded::read(file);
        let overlay = overlay::read(&mut loaded, &self.index).map_err(OpenError::Invalid)?;
        self.overlay = Some(Box::new(Laid { loaded, overlay }));
        Ok(self)
    }

    /// The site overlay that is laid over it.
    pub fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_ref().map(|laid| &laid.overlay)
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
        let laid = self.overlay.as_ref().map(|laid| &laid.loaded);
        let Some((loaded, node)) = laid.and_then(|loaded| Some((loaded, loaded.root()?))) else { return };
        let target = node.get("applies_to").and_then(|node| node.text());
        if target != Some(resolved.id.as_str()) && target != resolved.arch.as_deref() {
            return;
        }
        let mut node = node.clone();
        for key in ["applies_to", "fingerprint", "schema", "sources"] {
            node.remove(&format!("/{key}"));
        }
        resolved.apply(&Layer {
            kind: LayerKind::Overlay,
            id: OVERLAY_LAYER,
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
