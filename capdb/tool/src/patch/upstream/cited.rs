//! What the database has from a project already: the value that cites it, and its reading.

use capdb::database::Database;
use capdb::quantity::Size;
use serde_json::{Map, Value};

use super::import::Arch;
use crate::patch::release::Release;

/// `symm-mem` of `sglang-0.5.23-symm-mem`.
pub fn suffix(database: &Database, id: &str) -> Option<String> {
    let source = database.index().sources.sources.get(id)?;
    let head = format!("{}-{}-", source.project.as_deref()?, source.version.as_deref()?);
    id.strip_prefix(&head).map(str::to_owned)
}

/// A source of this project, whatever the release.
pub fn fits(database: &Database, release: &Release, id: &str, suffix_wanted: Option<&str>) -> bool {
    let source = database.index().sources.sources.get(id);
    let project = source.and_then(|source| source.project.as_deref());
    project == Some(release.project.word()) && suffix(database, id).as_deref() == suffix_wanted
}

/// What the database has from a project.
pub struct Cited {
    pub source: String,
    pub value: Value,
    /// One of the block's readings says it, not the block's value alone.
    pub is_reading: bool,
}

/// What the architecture's own record says that this project says about the fields of `value`: the value of ours that cites
/// it, and the reading, which may hold only what differs from that value.
pub fn cited(arch: &Arch, block: &str, value: &Value, fits: impl Fn(&str) -> bool) -> Option<Cited> {
    let own = |pointer: &str| arch.resolved.origin(pointer).filter(|origin| origin.layer == arch.card.id);
    let block = format!("/{}", block.replace('.', "/"));
    let (mut source, mut known) = (None, Map::new());
    for field in value.as_object().into_iter().flat_map(Map::keys) {
        let pointer = format!("{block}/{field}");
        let evidence = own(&pointer).and_then(|origin| origin.evidence.as_ref());
        if let (Some(evidence), Some(value)) = (evidence, arch.resolved.value.pointer(&pointer))
            && fits(&evidence.source)
        {
            source = Some(evidence.source.clone());
            known.insert(field.clone(), value.clone());
        }
    }
    let pointer = format!("{block}/readings");
    let readings = own(&pointer).and_then(|_| arch.resolved.value.pointer(&pointer)).and_then(Value::as_array);
    let reading = readings.into_iter().flatten().find_map(|reading| {
        let id = reading.get("source")?.as_str().filter(|id| fits(id))?;
        Some((id, reading.get("value")?))
    });
    if let Some((id, reading)) = reading {
        merge(&mut known, reading);
        return Some(Cited { source: id.to_owned(), value: Value::Object(known), is_reading: true });
    }
    source.map(|source| Cited { source, value: Value::Object(known), is_reading: false })
}

/// Lays a reading over a value: maps by key, everything else replaces.
fn merge(value: &mut Map<String, Value>, reading: &Value) {
    for (key, new) in reading.as_object().into_iter().flatten() {
        match (value.get_mut(key), new) {
            (Some(Value::Object(old)), Value::Object(_)) => merge(old, new),
            _ => drop(value.insert(key.clone(), new.clone())),
        }
    }
}

/// The database says so itself, whichever source it cites.
pub fn is_ours(arch: &Arch, block: &str, value: &Value) -> bool {
    let field = |(name, value): (&String, &Value)| {
        let ours = arch.resolved.value.pointer(&format!("/{}/{name}", block.replace('.', "/")));
        ours.is_some_and(|ours| same(ours, value))
    };
    value.as_object().is_some_and(|map| map.iter().all(field))
}

/// Equal by meaning: `512KiB` and `0.5MiB` are the same size.
pub fn same(known: &Value, value: &Value) -> bool {
    match (known, value) {
        (Value::Object(known), Value::Object(value)) => {
            known.len() == value.len()
                && known.iter().all(|(key, known)| value.get(key).is_some_and(|value| same(known, value)))
        }
        _ => known == value || bytes(known).is_some_and(|known| bytes(value) == Some(known)),
    }
}

fn bytes(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse::<Size>().ok().map(|size| size.bytes()),
        _ => None,
    }
}
