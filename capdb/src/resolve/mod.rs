//! Author form → resolved form: parents, product and overlays merged into one tree whose every value knows its origin.
//!
//! Maps merge by key, lists and scalars replace, `null` removes. Evidence never crosses a layer: a value that comes from a
//! parent is `inherited`, whatever the parent's evidence says.

mod layer;
mod origin;

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use layer::{Layer, LayerKind, OVERLAY_LAYER};
pub use origin::{Origin, Provenance};

use crate::record::{AllReduce, Compile, Fusion, Limits, Speculative, Support};

/// A merged record does not have the form that its schema gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record `{id}`, key `{key}`: {message}")]
pub struct RecordError {
    pub id: String,
    /// Dotted path.
    pub key: String,
    pub message: String,
}

/// A merged record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// Id of the record that was asked for: a product's or an architecture's.
    pub id: String,
    /// The architecture, `None` for one without a record.
    pub arch: Option<String>,
    pub gpu: Option<String>,
    /// The merged tree.
    pub value: Value,
    /// JSON pointer of every scalar and list → where it comes from.
    pub origins: BTreeMap<String, Origin>,
}

impl Resolved {
    /// An architecture that nobody described: served on NCCL and generic kernels, loudly.
    pub fn unknown(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            arch: None,
            gpu: None,
            value: Value::Object(Default::default()),
            origins: BTreeMap::new(),
        }
    }

    /// Merges layers, the weakest first.
    pub fn merge(id: &str, arch: Option<&str>, gpu: Option<&str>, layers: &[Layer<'_>]) -> Self {
        let mut resolved = Self { arch: arch.map(str::to_owned), gpu: gpu.map(str::to_owned), ..Self::unknown(id) };
        for layer in layers {
            resolved.apply(layer);
        }
        resolved
    }

    /// Lays one more layer over the record.
    pub fn apply(&mut self, layer: &Layer<'_>) {
        layer::apply(self, layer);
    }

    fn part<T: DeserializeOwned + Default>(&self, key: &str) -> Result<T, RecordError> {
        let Some(value) = self.value.get(key) else { return Ok(T::default()) };
        serde_path_to_error::deserialize(value).map_err(|error| RecordError {
            id: self.id.clone(),
            key: format!("{key}.{}", error.path()),
            message: error.inner().to_string(),
        })
    }

    /// The all-reduce block; empty where the record has none.
    pub fn allreduce(&self) -> Result<AllReduce, RecordError> {
        self.part("allreduce")
    }

    pub fn fusions(&self) -> Result<IndexMap<String, Fusion>, RecordError> {
        self.part("fusions")
    }

    pub fn features(&self) -> Result<IndexMap<String, Support>, RecordError> {
        self.part("features")
    }

    pub fn compile(&self) -> Result<Option<Compile>, RecordError> {
        self.part("compile")
    }

    pub fn limits(&self) -> Result<Limits, RecordError> {
        self.part("limits")
    }

    pub fn speculative(&self) -> Result<Speculative, RecordError> {
        self.part("speculative")
    }

    /// Where the value at a JSON pointer comes from. For a mapping: its first value.
    pub fn origin(&self, pointer: &str) -> Option<&Origin> {
        self.origins.get(pointer).or_else(|| {
            let prefix = format!("{pointer}/");
            self.origins
                .range(prefix.clone()..)
                .next()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(_, origin)| origin)
        })
    }
}

#[cfg(test)]
mod tests;
