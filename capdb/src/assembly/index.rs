//! What a database holds besides the records themselves: small, and needed by every decision.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bandwidth, Size};
use crate::record::{Alias, GpuRecord, Manifest, OrderFile, SourcesFile, StackFile, Topology, VocabFile};

/// The index of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    pub manifest: Manifest,
    pub vocab: VocabFile,
    pub sources: SourcesFile,
    pub order: OrderFile,
    pub stack: StackFile,
    pub archs: IndexMap<String, ArchEntry>,
    pub gpus: IndexMap<String, GpuEntry>,
}

/// An architecture in the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchEntry {
    pub name: String,
    pub compute_capability: String,
    pub extends: Option<String>,
    pub aliases: Vec<Alias>,
    /// Path inside the database.
    pub file: String,
}

/// A product in the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuEntry {
    pub name: String,
    pub arch: String,
    pub device_names: Vec<String>,
    pub memory: Option<Size>,
    pub memory_bandwidth: Option<Bandwidth>,
    pub usual_topology: Topology,
    pub usual_multicast: bool,
    pub file: String,
}

impl GpuEntry {
    pub(super) fn new(record: &GpuRecord, file: &str) -> Self {
        Self {
            name: record.name.clone(),
            arch: record.arch.clone(),
            device_names: record.device_names.clone(),
            memory: record.memory,
            memory_bandwidth: record.memory_bandwidth,
            usual_topology: record.usual_topology,
            usual_multicast: record.usual_multicast,
            file: file.to_owned(),
        }
    }
}

impl Index {
    /// The id of a record by its id, an alias (`sm101`), a target-like spelling (`sm_120`) or a compute capability ("12.0").
    pub fn id_of(&self, name: &str) -> Option<&str> {
        self.gpus.get_key_value(name).map(|(id, _)| id.as_str()).or_else(|| self.arch_id_of(name))
    }

    /// The same for architectures only.
    pub fn arch_id_of(&self, name: &str) -> Option<&str> {
        let wanted = normalise(name);
        self.archs
            .iter()
            .find(|(id, entry)| {
                normalise(id) == wanted
                    || normalise(&entry.compute_capability) == wanted
                    || entry.aliases.iter().any(|alias| normalise(&alias.name) == wanted)
            })
            .map(|(id, _)| id.as_str())
    }

    /// Every id, products first.
    pub fn ids(&self) -> Vec<String> {
        self.gpus.keys().chain(self.archs.keys()).cloned().collect()
    }

    /// A product by the name that the driver reports.
    pub fn gpu_by_device_name(&self, name: &str) -> Option<(&str, &GpuEntry)> {
        self.gpus
            .iter()
            .find(|(_, entry)| entry.device_names.iter().any(|known| known == name))
            .map(|(id, entry)| (id.as_str(), entry))
    }
}

/// One spelling for `sm_120`, `sm120`, `SM120` and "12.0". Two records that meet here are duplicates.
pub fn normalise(name: &str) -> String {
    let lower = name.to_ascii_lowercase().replace('_', "");
    match lower.split_once('.') {
        Some((major, minor))
            if [major, minor].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())) =>
        {
            format!("sm{major}{minor}")
        }
        _ => lower,
    }
}
