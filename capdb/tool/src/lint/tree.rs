//! The database as lints see it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use capdb::assembly::{Assembly, Index, normalise};
use capdb::load::{FileKind, Loaded};
use capdb::resolve::Resolved;
use capdb::yaml::Node;

/// A database with the verdict on each of its files.
pub struct Tree<'a> {
    assembly: &'a Assembly,
    sound: &'a [bool],
    /// Whether the files are a whole database, so that what is missing is missing.
    complete: bool,
    /// Merged parents: many records share one.
    parents: Mutex<HashMap<String, Option<Arc<Resolved>>>>,
    /// Cells that decision cases speak of: (architecture, world size, algorithm).
    covered: HashSet<(String, u64, String)>,
}

impl<'a> Tree<'a> {
    /// `sound` says for each file whether the schema accepts it.
    pub fn new(assembly: &'a Assembly, sound: &'a [bool], complete: bool) -> Self {
        let mut tree = Self { assembly, sound, complete, parents: Mutex::default(), covered: HashSet::new() };
        tree.covered = tree.cells_of_cases();
        tree
    }

    pub fn index(&self) -> &'a Index {
        &self.assembly.index
    }

    /// Whether the file of a record, in any spelling of its name, is here and is not accepted, which is reported there.
    pub fn is_broken(&self, name: &str) -> bool {
        let wanted = normalise(name);
        let mut refused = self.assembly.files().iter().zip(self.sound).filter(|(_, sound)| !**sound);
        refused.any(|(loaded, _)| {
            let file = loaded.file.relative.rsplit('/').next().and_then(|file| file.strip_suffix(".yaml"));
            file.is_some_and(|file| normalise(file) == wanted)
        })
    }

    /// Whether every file is accepted, so that what none of them says is said nowhere.
    pub fn is_sound(&self) -> bool {
        self.sound.iter().all(|sound| *sound)
    }

    /// Files that the schema accepts.
    pub fn files(&self) -> impl Iterator<Item = &'a Loaded> {
        self.assembly.files().iter().zip(self.sound).filter(|(_, sound)| **sound).map(|(loaded, _)| loaded)
    }

    pub fn of_kind(&self, kind: FileKind) -> impl Iterator<Item = (&'a Loaded, &'a Node)> {
        self.files().filter(move |loaded| loaded.kind == Some(kind)).filter_map(|loaded| Some((loaded, loaded.root()?)))
    }

    /// The file that a database has once, if it is sound.
    pub fn single(&self, kind: FileKind) -> Option<(&'a Loaded, &'a Node)> {
        self.of_kind(kind).next()
    }

    /// A record with everything merged; `None` if its parents are broken, which is reported elsewhere.
    pub fn resolve(&self, id: &str) -> Option<Resolved> {
        self.assembly.resolve(id).ok()
    }

    /// The same for a record that others extend, merged once.
    pub fn parent(&self, id: &str) -> Option<Arc<Resolved>> {
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        parents.entry(id.to_owned()).or_insert_with(|| self.resolve(id).map(Arc::new)).clone()
    }

    pub fn covers(&self, arch: &str, world_size: u64, algorithm: &str) -> bool {
        self.covered.contains(&(arch.to_owned(), world_size, algorithm.to_owned()))
    }

    /// Whether all cases are here that could cover a record. A single file is not asked for its cases.
    pub fn has_cases(&self) -> bool {
        self.complete
            && self.is_sound()
            && self.assembly.files().iter().any(|loaded| loaded.kind == Some(FileKind::Cases))
    }

    /// A case speaks of an algorithm that it requests, expects, or expects as the nearest.
    fn cells_of_cases(&self) -> HashSet<(String, u64, String)> {
        let mut cells = HashSet::new();
        for (_, root) in self.of_kind(FileKind::Cases) {
            for case in root.get("cases").map(Node::items).unwrap_or_default() {
                let text = |pointer: &str| case.pointer(pointer).and_then(Node::text);
                let arch = text("/given/arch").and_then(|arch| self.index().arch_id_of(arch)).or_else(|| {
                    let gpu = self.index().gpus.get(text("/given/gpu")?)?;
                    Some(gpu.arch.as_str())
                });
                let world_size = case.pointer("/given/world_size").and_then(|node| node.to_json().as_u64());
                let (Some(arch), Some(world_size)) = (arch, world_size) else { continue };
                let named = ["/given/request/allreduce", "/expect/allreduce", "/expect/nearest"].map(text);
                for algorithm in named.into_iter().flatten() {
                    cells.insert((arch.to_owned(), world_size, algorithm.to_owned()));
                }
            }
        }
        cells
    }
}
