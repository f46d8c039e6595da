//! `model.safetensors.index.json`: which shard holds which tensor.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde::Deserialize;

use super::{NESTED, add_file};
use crate::files::{LARGEST_TEXT, read_bounded, read_json};
use crate::weights::bytes::open;
use crate::weights::table::{Stored, Table, missing};
use crate::weights::{OpenFile, WeightError};

#[derive(Deserialize)]
struct Index {
    weight_map: IndexMap<String, String>,
}

/// Opens every shard that the index names and takes each tensor from the shard that the index says.
pub(super) fn open_shards(path: &Path, opener: OpenFile) -> Result<Table, WeightError> {
    let fail = |message: String| WeightError::File { path: path.display().to_string(), message };
    let text = read_bounded(path, LARGEST_TEXT).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let index: Index = read_json(&text).map_err(|error| fail(format!("is not an index of shards: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut table = Table::default();
    let mut shards: IndexMap<&str, IndexMap<String, Stored>> = IndexMap::new();
    for (name, shard) in &index.weight_map {
        if !shards.contains_key(&**shard) {
            let file = shard_path(folder, shard).ok_or_else(|| {
                fail(format!("tensor `{name}` lies in \"{shard}\", which is not a name of a file in this folder"))
            })?;
            let content = open(&file, opener)?;
            shards.insert(shard, add_file(&mut table, &file.display().to_string(), content)?);
        }
        let tensors = &shards[&**shard];
        let own = name.strip_prefix(NESTED).unwrap_or(name);
        let Some(stored) = tensors.get(own) else {
            let absent = missing(&folder.join(shard).display().to_string(), own, tensors.keys().map(String::as_str));
            return Err(fail(format!("says that \"{shard}\" holds `{name}`, but {absent}")));
        };
        table.entries.insert(own.to_owned(), stored.clone());
    }
    Ok(table)
}

/// A shard's path, if its name is that of a file beside the index and not a way out of the folder.
fn shard_path(folder: &Path, shard: &str) -> Option<PathBuf> {
    let plain = Path::new(shard).file_name().is_some_and(|name| name == shard);
    plain.then(|| folder.join(shard))
}

/// The only safetensors file of a folder that has neither of the usual names.
pub(super) fn only_file(folder: &Path) -> Result<PathBuf, WeightError> {
    let fail = |message: String| WeightError::File { path: folder.display().to_string(), message };
    let entries = std::fs::read_dir(folder).map_err(|error| fail(format!("cannot be listed: {error}")))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .collect();
    found.sort();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(fail(
            "has no weights: expected `model.safetensors` or `model.safetensors.index.json` with its shards (random \
             weights need `--load-format dummy`)"
                .to_owned(),
        )),
        several => Err(fail(format!(
            "has {} safetensors files but no `model.safetensors.index.json` that says what they hold",
            several.len()
        ))),
    }
}
