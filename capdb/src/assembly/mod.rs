//! Files → index and records. Finds what keeps a database from being used; the tool's lints find the rest.

mod index;

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use indexmap::map::Entry;
use serde::de::DeserializeOwned;

pub use index::{ArchEntry, GpuEntry, Index, normalise};

use crate::load::{FileKind, Loaded, SchemaVersion};
use crate::problem::Problem;
use crate::record::{ArchRecord, GpuRecord};
use crate::resolve::{Layer, LayerKind, Resolved};
use crate::typed;

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
        let mut archs = IndexMap::new();
        let mut gpus = IndexMap::new();
        for loaded in files.iter_mut().filter(|loaded| readable(loaded)) {
            let file = loaded.file.relative.clone();
            match loaded.kind {
                Some(FileKind::Arch) => {
                    if let Some(record) = read::<ArchRecord>(loaded, &mut problems) {
                        let ArchRecord { id, name, compute_capability, extends, aliases, .. } = record;
                        let entry = ArchEntry { name, compute_capability, extends, aliases, file };
                        claim(&mut archs, id, entry, loaded, &mut problems);
                    }
                }
                Some(FileKind::Gpu) => {
                    if let Some(record) = read::<GpuRecord>(loaded, &mut problems) {
                        let entry = GpuEntry::new(&record, &file);
                        claim(&mut gpus, record.id, entry, loaded, &mut problems);
                    }
                }
                _ => {}
            }
        }
        let index = Index {
            manifest: single(
                &mut files,
                FileKind::Manifest,
                &mut problems,
                r#"{"schema":"manifest/1","data_version":"0.0.0","schemas":{},"oldest_reader":"0.0.0"}"#,
            ),
            vocab: single(
                &mut files,
                FileKind::Vocab,
                &mut problems,
                r#"{"schema":"vocab/1","topologies":{},"algorithms":{},"dtypes":{},"evidence":{},"support":{},"features":{},"fusions":{},"attention":{},"quantization":{},"reasons":{}}"#,
            ),
            sources: single(&mut files, FileKind::Sources, &mut problems, r#"{"schema":"sources/1","sources":{}}"#),
            order: single(&mut files, FileKind::Order, &mut problems, r#"{"schema":"order/1","order":{}}"#),
            stack: single(
                &mut files,
                FileKind::Stack,
                &mut problems,
                r#"{"schema":"stack/1","min_driver_by_toolkit_major":{},"source":""}"#,
            ),
            archs,
            gpus,
        };
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
                // Said once, where it can be mended: not again for every record below, nor beside what broke the parent.
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

/// Takes a record's id. The first file keeps it; a second one would make two records of one name.
fn claim<T>(records: &mut IndexMap<String, T>, id: String, entry: T, loaded: &Loaded, problems: &mut Vec<Problem>) {
    match records.entry(id) {
        Entry::Vacant(place) => {
            place.insert(entry);
        }
        Entry::Occupied(place) => {
            let span = loaded.root().and_then(|root| root.get("id")).map_or(0..0, |node| node.span.clone());
            let message = format!("`{}` belongs to another record already", place.key());
            let problem = Problem::error("duplicate-record", &loaded.file.path, span, message);
            problems.push(problem.hint("one id has one record; add to that one, or choose another id"));
        }
    }
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

fn readable(loaded: &Loaded) -> bool {
    let word = loaded.root().and_then(|root| root.get("schema")).and_then(|node| node.text()).unwrap_or("");
    loaded
        .kind
        .is_some_and(|kind| matches!(SchemaVersion::of(kind, word), SchemaVersion::Known | SchemaVersion::NewerMinor))
}

fn read<T: DeserializeOwned>(loaded: &mut Loaded, problems: &mut Vec<Problem>) -> Option<T> {
    match typed::read::<T>(loaded) {
        Ok((value, warnings)) => {
            problems.extend(warnings);
            Some(value)
        }
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

/// A file that every database has once; `empty` stands in where it is missing or broken, which is reported.
fn single<T: DeserializeOwned>(files: &mut [Loaded], kind: FileKind, problems: &mut Vec<Problem>, empty: &str) -> T {
    let found = files.iter_mut().find(|loaded| loaded.kind == Some(kind));
    let value = match found {
        Some(loaded) if readable(loaded) => read(loaded, problems),
        Some(_) => None,
        None => {
            let message = format!("the database has no file of schema `{}/1`", kind.schema());
            problems.push(
                Problem::error("missing-file", kind.schema(), 0..0, message)
                    .hint("is this the folder of a database, e.g. `capdb/data`?"),
            );
            None
        }
    };
    value.unwrap_or_else(|| serde_json::from_str(empty).expect("the stand-in has the form of its type"))
}

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

fn check_reader(index: &Index, files: &[Loaded], problems: &mut Vec<Problem>) {
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
