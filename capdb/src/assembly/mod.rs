//! Files → index and records. Finds what keeps a database from being used; the tool's lints find the rest.

mod index;
mod reading;
mod versions;

use std::collections::{HashMap, HashSet};

use reading::read_index;
use versions::check_reader;

pub use index::{ArchEntry, GpuEntry, Index, normalise};
pub(crate) use versions::check_schema_words;

use crate::load::{FileKind, Loaded};
use crate::problem::Problem;
use crate::resolve::{Layer, LayerKind, Resolved};

/// Every file of a database, read and indexed.
#[derive(Debug)]
pub struct Assembly {
    pub index: Index,
    files: Vec<Loaded>,
    /// Where each record's file is in `files`.
    places: HashMap<(FileKind, String), usize>,
    /// Records, by the names of their files, that are here and cannot be read: what refers to them is not at fault.
    broken: HashSet<String>,
}

/// Why a record cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFailure {
    #[error("it extends `{0}`, which does not exist")]
    DanglingParent(String),
    #[error("its parents form a circle: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    #[error("its architecture `{0}` has no record")]
    NoArch(String),
    #[error("it does not exist")]
    Missing,
}

impl Assembly {
    /// Indexes files. The index holds what could be read; the problems say what could not.
    pub fn new(mut files: Vec<Loaded>) -> (Self, Vec<Problem>) {
        let mut problems: Vec<Problem> =
            files.iter().flat_map(|loaded| loaded.document.problems.iter().cloned()).collect();
        check_schema_words(&files, &mut problems);
        let index = read_index(&mut files, &mut problems);
        check_reader(&index, &files, &mut problems);
        let places = places(&files);
        let broken = broken(&index, &files);
        let assembly = Self { index, files, places, broken };
        assembly.check_chains(&mut problems);
        (assembly, problems)
    }

    pub fn files(&self) -> &[Loaded] {
        &self.files
    }

    /// The file of a record.
    pub fn find(&self, kind: FileKind, id: &str) -> Option<&Loaded> {
        self.places.get(&(kind, id.to_owned())).and_then(|place| self.files.get(*place))
    }

    /// Whether the file of a record is here and cannot be read.
    fn is_broken(&self, name: &str) -> bool {
        self.broken.contains(&normalise(name))
    }

    /// The records from the root of the family down to `id`.
    pub fn chain(&self, id: &str) -> Result<Vec<String>, RecordFailure> {
        let mut chain = vec![id.to_owned()];
        let mut current = self.index.archs.get(id).ok_or(RecordFailure::Missing)?;
        while let Some(parent) = &current.extends {
            let cycle = chain.contains(parent);
            chain.push(parent.clone());
            if cycle {
                return Err(RecordFailure::Cycle(chain));
            }
            current = self.index.archs.get(parent).ok_or_else(|| RecordFailure::DanglingParent(parent.clone()))?;
        }
        chain.reverse();
        Ok(chain)
    }

    /// Merges one record, by id.
    pub fn resolve(&self, id: &str) -> Result<Resolved, RecordFailure> {
        let gpu = self.index.gpus.get(id);
        let arch = gpu.map_or(id, |entry| entry.arch.as_str());
        let chain = self.chain(arch).map_err(|failure| match failure {
            RecordFailure::Missing if gpu.is_some() => RecordFailure::NoArch(arch.to_owned()),
            other => other,
        })?;
        let mut layers: Vec<Layer<'_>> = chain
            .iter()
            .filter_map(|record| {
                let kind = if record == arch { LayerKind::Arch } else { LayerKind::Parent };
                self.find(FileKind::Arch, record).and_then(|loaded| layer(kind, record, loaded))
            })
            .collect();
        layers.extend(gpu.and(self.find(FileKind::Gpu, id)).and_then(|loaded| layer(LayerKind::Gpu, id, loaded)));
        Ok(Resolved::merge(id, Some(arch), gpu.map(|_| id), &layers))
    }

    fn check_chains(&self, problems: &mut Vec<Problem>) {
        for (id, entry) in &self.index.archs {
            match self.chain(id) {
                // Said once, where it can be fixed: not again for every record below, nor beside what broke the parent.
                Err(RecordFailure::DanglingParent(parent)) if self.is_broken(&parent) => {}
                Err(RecordFailure::DanglingParent(parent)) if entry.extends.as_ref() != Some(&parent) => {}
                Err(RecordFailure::Cycle(chain))
                    if chain.last() != Some(id) || chain.iter().any(|other| other < id) => {}
                Err(failure) => problems.push(self.failure(FileKind::Arch, id, "/extends", &failure)),
                Ok(_) => {}
            }
        }
        for (id, entry) in &self.index.gpus {
            if !self.index.archs.contains_key(&entry.arch) && !self.is_broken(&entry.arch) {
                problems.push(self.failure(FileKind::Gpu, id, "/arch", &RecordFailure::NoArch(entry.arch.clone())));
            }
        }
    }

    fn failure(&self, kind: FileKind, id: &str, pointer: &str, failure: &RecordFailure) -> Problem {
        let (code, hint) = match failure {
            RecordFailure::DanglingParent(_) | RecordFailure::Missing => {
                ("dangling-parent", "name an existing record; `capdb list` shows them")
            }
            RecordFailure::Cycle(_) => ("extends-cycle", "let one of them stand on its own"),
            RecordFailure::NoArch(_) => ("dangling-arch", "name an existing record; `capdb list` shows them"),
        };
        let loaded = self.find(kind, id);
        let path = loaded.map_or("", |loaded| loaded.file.path.as_str());
        let span =
            loaded.and_then(Loaded::root).and_then(|root| root.pointer(pointer)).map_or(0..0, |node| node.span.clone());
        Problem::error(code, path, span, format!("record `{id}` cannot be used: {failure}")).hint(hint)
    }
}

fn places(files: &[Loaded]) -> HashMap<(FileKind, String), usize> {
    let mut places = HashMap::new();
    for (place, loaded) in files.iter().enumerate() {
        let id = loaded.root().and_then(|root| root.get("id")).and_then(|node| node.text());
        if let (Some(kind), Some(id)) = (loaded.kind, id) {
            places.entry((kind, id.to_owned())).or_insert(place);
        }
    }
    places
}

fn broken(index: &Index, files: &[Loaded]) -> HashSet<String> {
    let records = files.iter().filter(|loaded| matches!(loaded.kind, Some(FileKind::Arch | FileKind::Gpu)));
    let names = records.filter_map(|loaded| loaded.file.relative.split_once('/')?.1.strip_suffix(".yaml"));
    let unread = names.filter(|name| !index.archs.contains_key(*name) && !index.gpus.contains_key(*name));
    unread.map(normalise).collect()
}

fn layer<'a>(kind: LayerKind, id: &'a str, loaded: &'a Loaded) -> Option<Layer<'a>> {
    Some(Layer { kind, id, file: &loaded.file.relative, bytes: &loaded.file.bytes, node: loaded.root()? })
}
