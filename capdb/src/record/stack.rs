//! Toolkits, drivers and NCCL.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Version;

/// `stack.yaml`: what is known about toolkits, drivers and NCCL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackFile {
    #[schemars(regex(pattern = r"^stack/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Oldest driver for binaries built with a toolkit of this major version.
    pub min_driver_by_toolkit_major: IndexMap<String, Version>,
    /// Id in `sources.yaml` of that table.
    pub source: String,
    /// Combinations that are known to give wrong results or to crash.
    #[serde(default)]
    pub known_bad: Vec<KnownBadStack>,
}

/// A combination that is known to be bad. Every condition that is given must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownBadStack {
    #[schemars(length(min = 1))]
    pub id: String,
    /// What goes wrong.
    #[schemars(length(min = 1))]
    pub why: String,
    pub source: String,
    /// Record ids; no key means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StackRange")]
    pub toolkit: Option<StackRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StackRange")]
    pub driver: Option<StackRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StackRange")]
    pub nccl: Option<StackRange>,
}

/// A closed range of versions, both ends included. Open ends are not allowed: nobody tested the future.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackRange {
    pub from: Version,
    pub to: Version,
}
