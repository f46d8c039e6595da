//! GGUF checkpoints: one file with metadata, tokenizer and tensors.
//!
//! Format: `docs/gguf.md` of ggml, versions 2 and 3, little-endian.

mod cursor;
mod file;
mod kind;
mod names;
mod rows;
mod value;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::bytes::open;
use super::table::{Stored, Table};
use super::{FileBytes, OpenFile, TensorInfo, TensorView, WeightError, WeightSource};
use file::{GgufFile, GgufTensor};
use names::Name;

/// Most experts of a stacked tensor.
const EXPERTS: usize = 1 << 16;

/// The tensors of a GGUF file under Hugging Face names, in Hugging Face's row order, and its metadata.
pub struct GgufWeights {
    file: GgufFile,
    table: Table,
    /// Heads of tensors whose rows the converter of Llama models has interleaved.
    permuted: HashMap<String, usize>,
}

impl GgufWeights {
    pub fn open(path: &Path, opener: OpenFile) -> Result<Self, WeightError> {
        Self::from_bytes(&path.display().to_string(), open(path, opener)?)
    }

    /// Reads a file's content; `path` is for messages.
    pub fn from_bytes(path: &str, bytes: FileBytes) -> Result<Self, WeightError> {
        let fail = |message| WeightError::File { path: path.to_owned(), message };
        let mut file = GgufFile::parse(bytes).map_err(fail)?;
        let json = file.json().map_err(fail)?;
        if let Some(parts) = json.get("split.count").and_then(Json::as_u64).filter(|parts| *parts > 1) {
            return Err(fail(format!("is one of {parts} parts of a split file; merge them with `gguf-split --merge`")));
        }
        let mut table = Table { files: vec![(path.to_owned(), file.bytes.clone())], ..Table::default() };
        for (name, tensor) in std::mem::take(&mut file.tensors) {
            add(&mut table, &name, tensor).map_err(fail)?;
        }
        let permuted = permuted(&table, &json).map_err(fail)?;
        Ok(Self { file, table, permuted })
    }

    /// Where the file is, for messages.
    pub fn path(&self) -> &str {
        &self.table.files[0].0
    }

    /// Metadata scalars and short arrays as JSON, under their GGUF keys.
    pub fn metadata(&self) -> Result<Map<String, Json>, WeightError> {
        self.located(self.file.json())
    }

    /// A string of the metadata; `None` also for a value of another type.
    pub fn text(&self, key: &str) -> Result<Option<&str>, WeightError> {
        self.located(self.file.text(key))
    }

    /// An array of strings of the metadata.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, WeightError> {
        self.located(self.file.texts(key))
    }

    /// An array of numbers of the metadata.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, WeightError> {
        self.located(self.file.numbers(key))
    }

    /// Length of an array of the metadata.
    pub fn length(&self, key: &str) -> Option<usize> {
        self.file.length(key)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.table.entries.contains_key(name)
    }

    fn located<T>(&self, result: Result<T, String>) -> Result<T, WeightError> {
        result.map_err(|message| WeightError::File { path: self.path().to_owned(), message })
    }
}

impl WeightSource for GgufWeights {
    fn names(&self) -> Vec<String> {
        self.table.names()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        self.table.info(name)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let mut view = self.table.view(name, shape)?;
        if let Some(heads) = self.permuted.get(name) {
            view.bytes = Cow::Owned(rows::split_halves(&view.bytes, shape[0], *heads));
        }
        Ok(view)
    }
}

/// Adds a tensor under its own name, or one entry per expert of a stacked one.
fn add(table: &mut Table, name: &str, tensor: GgufTensor) -> Result<(), String> {
    let GgufTensor { kind, shape, bytes } = tensor;
    let mut insert = |own: String, stored: Stored| match table.entries.insert(own, stored) {
        Some(_) => Err(format!("tensor `{name}` stands for a name that another tensor has")),
        None => Ok(()),
    };
    let (prefix, suffix) = match names::hugging_face(name) {
        Name::One(own) => return insert(own, Stored { kind, shape, file: 0, bytes }),
        Name::PerExpert { prefix, suffix } => (prefix, suffix),
    };
    let Some((experts, rest)) = shape.split_first().filter(|(experts, rest)| **experts <= EXPERTS && !rest.is_empty())
    else {
        return Err(format!("tensor `{name}` has shape {shape:?}, but must stack up to {EXPERTS} experts"));
    };
    let size = bytes.len() / experts;
    for expert in 0..*experts {
        let start = bytes.start + expert * size;
        let stored = Stored { kind: kind.clone(), shape: rest.to_vec(), file: 0, bytes: start..start + size };
        insert(format!("{prefix}{expert}{suffix}"), stored)?;
    }
    Ok(())
}

/// The query and key tensors of a Llama file with their heads.
fn permuted(table: &Table, metadata: &Map<String, Json>) -> Result<HashMap<String, usize>, String> {
    let mut permuted = HashMap::new();
    if metadata.get("general.architecture").and_then(Json::as_str) != Some("llama") {
        return Ok(permuted);
    }
    let count = |key: &str| metadata.get(key).and_then(Json::as_u64).and_then(|heads| usize::try_from(heads).ok());
    let heads = count("llama.attention.head_count");
    let key_heads = count("llama.attention.head_count_kv").or(heads);
    for (name, stored) in &table.entries {
        let Some((_, part)) = name.rsplit_once(".self_attn.") else { continue };
        let heads = match part {
            "q_proj.weight" | "q_proj.bias" => heads,
            "k_proj.weight" | "k_proj.bias" => key_heads,
            _ => continue,
        };
        // A bias is a tensor of one-element rows.
        let rows = stored.shape[0];
        let heads = heads.filter(|heads| *heads > 0 && rows.is_multiple_of(2 * heads));
        let Some(heads) = heads.filter(|_| stored.bytes.len().is_multiple_of(rows)) else {
            return Err(format!(
                "tensor `{name}` has {rows} rows, which the heads of `llama.attention.head_count` and `head_count_kv` do \
                 not divide into pairs"
            ));
        };
        permuted.insert(name.clone(), heads);
    }
    Ok(permuted)
}
