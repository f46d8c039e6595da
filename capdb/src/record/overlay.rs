//! Values that one machine lays over the database.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::algorithm::AllReduce;
use super::fusion::Fusion;
use super::source::Source;

/// A site overlay: values measured on one machine, laid over everything else. `archway tune` writes one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overlay {
    #[schemars(regex(pattern = r"^overlay/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Record that it is laid over: the id of a product or of an architecture.
    #[schemars(length(min = 1))]
    pub applies_to: String,
    /// What the machine looked like; compared with the machine that reads it.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fingerprint: IndexMap<String, String>,
    /// Runs that its evidence cites and that `sources.yaml` does not know.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub sources: IndexMap<String, Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllReduce")]
    pub allreduce: Option<AllReduce>,
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fusions: IndexMap<String, Fusion>,
}
