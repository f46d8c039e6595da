//! Safetensors checkpoints: one file, or shards with an index.

mod header;
mod index;

use std::path::Path;

use indexmap::IndexMap;

use super::bytes::open;
use super::table::{Stored, Table};
use super::{FileBytes, OpenFile, TensorInfo, TensorView, WeightError, WeightSource};
use crate::files::is_there;

/// The prefix under which multimodal checkpoints keep their language model.
const NESTED: &str = "language_model.";

/// The tensors of a safetensors checkpoint. Names of a nested language model lose their `language_model.`.
pub struct SafetensorsWeights(Table);

impl SafetensorsWeights {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names, or the only safetensors
    /// file of a folder.
    pub fn open_folder(folder: &Path, open: OpenFile) -> Result<Self, WeightError> {
        let single = folder.join("model.safetensors");
        if is_there(&single) {
            return Self::open_file(&single, open);
        }
        let index = folder.join("model.safetensors.index.json");
        if is_there(&index) {
            return index::open_shards(&index, open).map(Self);
        }
        Self::open_file(&index::only_file(folder)?, open)
    }

    /// Opens one file.
    pub fn open_file(path: &Path, opener: OpenFile) -> Result<Self, WeightError> {
        Self::from_bytes(&path.display().to_string(), open(path, opener)?)
    }

    /// Reads a file's content; `path` is for messages.
    pub fn from_bytes(path: &str, bytes: FileBytes) -> Result<Self, WeightError> {
        let mut table = Table::default();
        table.entries = add_file(&mut table, path, bytes)?;
        Ok(Self(table))
    }
}

impl WeightSource for SafetensorsWeights {
    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        self.0.info(name)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        self.0.view(name, shape)
    }
}

/// Adds a file's content to the table's files and returns its tensors.
fn add_file(table: &mut Table, path: &str, bytes: FileBytes) -> Result<IndexMap<String, Stored>, WeightError> {
    let path = path.to_owned();
    let entries = header::read((*bytes).as_ref(), table.files.len())
        .map_err(|message| WeightError::File { path: path.clone(), message })?;
    table.files.push((path.clone(), bytes));
    let mut named = IndexMap::with_capacity(entries.len());
    for (name, stored) in entries {
        let own = name.strip_prefix(NESTED).unwrap_or(&name);
        if named.insert(own.to_owned(), stored).is_some() {
            let message = format!("tensor `{own}` exists with and without the prefix `{NESTED}`");
            return Err(WeightError::File { path, message });
        }
    }
    Ok(named)
}
