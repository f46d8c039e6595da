//! Fused all-reduce kernels.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::algorithm::WorldSizes;
use super::evidence::{Evidence, Reading};
use super::support::Support;
use super::words::{Dtype, Topology};
use crate::quantity::Size;

/// One fused kernel on one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fusion {
    /// May be left out where a parent or the architecture gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Support")]
    pub support: Option<Support>,
    /// World sizes that it is built for; no key, no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u32>")]
    pub world_sizes: Option<Vec<u32>>,
    /// Element types of activations, residual and norm weight; no key means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Dtype>")]
    pub dtypes: Option<Vec<Dtype>>,
    /// Largest per-rank message by world size, inclusive; no key, no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Size>")]
    pub max_message: Option<WorldSizes<Size>>,
    /// Topologies that it runs on; no key, no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Topology>")]
    pub topologies: Option<Vec<Topology>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
    /// Evidence of single keys, by path inside this block, e.g. `max_message.8`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub evidence_for: IndexMap<String, Evidence>,
    /// What other projects say, where they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
}
