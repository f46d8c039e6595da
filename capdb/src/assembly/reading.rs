//! Files → index.

use indexmap::IndexMap;
use indexmap::map::Entry;
use serde::de::DeserializeOwned;

use super::index::{ArchEntry, GpuEntry, Index};
use crate::load::{FileKind, Loaded, SchemaVersion};
use crate::problem::Problem;
use crate::record::{ArchRecord, GpuRecord};
use crate::typed;

/// The index of what can be read; the problems say what cannot.
pub(super) fn read_index(files: &mut [Loaded], problems: &mut Vec<Problem>) -> Index {
    let (archs, gpus) = read_records(files, problems);
    Index {
        manifest: single(
            files,
            FileKind::Manifest,
            problems,
            r#"{"schema":"manifest/1","data_version":"0.0.0","schemas":{},"oldest_reader":"0.0.0"}"#,
        ),
        vocab: single(
            files,
            FileKind::Vocab,
            problems,
            r#"{"schema":"vocab/1","topologies":{},"algorithms":{},"dtypes":{},"evidence":{},"support":{},"features":{},"fusions":{},"attention":{},"quantization":{},"reasons":{}}"#,
        ),
        sources: single(files, FileKind::Sources, problems, r#"{"schema":"sources/1","sources":{}}"#),
        order: single(files, FileKind::Order, problems, r#"{"schema":"order/1","order":{}}"#),
        stack: single(
            files,
            FileKind::Stack,
            problems,
            r#"{"schema":"stack/1","min_driver_by_toolkit_major":{},"source":""}"#,
        ),
        archs,
        gpus,
    }
}

type Records = (IndexMap<String, ArchEntry>, IndexMap<String, GpuEntry>);

fn read_records(files: &mut [Loaded], problems: &mut Vec<Problem>) -> Records {
    let (mut archs, mut gpus) = (IndexMap::new(), IndexMap::new());
    for loaded in files.iter_mut().filter(|loaded| readable(loaded)) {
        let file = loaded.file.relative.clone();
        match loaded.kind {
            Some(FileKind::Arch) => {
                if let Some(record) = read::<ArchRecord>(loaded, problems) {
                    let ArchRecord { id, name, compute_capability, extends, aliases, .. } = record;
                    let entry = ArchEntry { name, compute_capability, extends, aliases, file };
                    claim(&mut archs, id, entry, loaded, problems);
                }
            }
            Some(FileKind::Gpu) => {
                if let Some(record) = read::<GpuRecord>(loaded, problems) {
                    let entry = GpuEntry::new(&record, &file);
                    claim(&mut gpus, record.id, entry, loaded, problems);
                }
            }
            _ => {}
        }
    }
    (archs, gpus)
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
