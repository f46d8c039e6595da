//! A record of one GPU architecture: `data/arch/*.yaml`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::algorithm::AllReduce;
use super::evidence::Evidence;
use super::fusion::Fusion;
use super::support::{KernelSupport, Support};
use crate::quantity::{Size, Version};

/// One GPU architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchRecord {
    /// Always `arch/1`.
    #[schemars(regex(pattern = r"^arch/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Equals the file's stem.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"))]
    pub id: String,
    /// CUDA compute capability, always quoted: "12.0".
    #[schemars(regex(pattern = r"^[0-9]{1,3}\.[0-9]{1,2}$"))]
    pub compute_capability: String,
    /// For display; nothing may depend on it.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Record that gives the values which stand here not. Authoring only: it says nothing about which code runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub extends: Option<String>,
    /// Other names of the same architecture.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Alias>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Compile")]
    pub compile: Option<Compile>,
    /// Which machines run code that was compiled for which target of this record: target → record ids.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub compiles_for: IndexMap<String, Vec<String>>,
    /// Instruction and machine features by their word in `vocab.yaml`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub features: IndexMap<String, Support>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub features_evidence: Option<Evidence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Limits")]
    pub limits: Option<Limits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllReduce")]
    pub allreduce: Option<AllReduce>,
    /// Fused kernels by id.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fusions: IndexMap<String, Fusion>,
    /// Attention kernels by id.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub attention: IndexMap<String, KernelSupport>,
    /// Weight and activation formats by id.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub quantization: IndexMap<String, KernelSupport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Speculative")]
    pub speculative: Option<Speculative>,
    /// Remarks that survive every tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Another name of an architecture, with the reason why it exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// An id (`sm101`) or a quoted compute capability ("10.1").
    #[schemars(length(min = 1))]
    pub name: String,
    #[schemars(length(min = 1))]
    pub reason: String,
}

/// How to build kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compile {
    /// Compiler targets, the preferred one first, e.g. `sm_120a`.
    #[schemars(length(min = 1))]
    pub targets: Vec<String>,
    /// Oldest toolkit that knows the first target.
    pub min_toolkit: Version,
    /// Oldest driver that runs the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub min_driver: Option<Version>,
    /// Oldest PTX version that knows the first target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub min_ptx: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
}

/// Limits of one multiprocessor and one block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Largest dynamic shared memory of a block, opt-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Size")]
    pub shared_memory_per_block_optin: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Size")]
    pub shared_memory_per_multiprocessor: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub registers_per_multiprocessor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub registers_per_thread: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub threads_per_block: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub threads_per_multiprocessor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub blocks_per_multiprocessor: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
}

/// Speculative decoding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Speculative {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Eagle3")]
    pub eagle3: Option<Eagle3>,
}

/// Defaults of EAGLE-3 on this architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Eagle3 {
    /// Drafted tokens of a chain, root not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 64))]
    pub chain: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DraftTree")]
    pub tree: Option<DraftTree>,
    /// Verify sizes, root included, that stay on the latency path: a step of them costs about as much as a decode step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_verify_tokens: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
}

/// Shape of a dynamic draft tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DraftTree {
    #[schemars(range(min = 1, max = 64))]
    pub steps: u32,
    #[schemars(range(min = 1, max = 64))]
    pub topk: u32,
    /// Tokens to verify, root included.
    #[schemars(range(min = 2, max = 256))]
    pub verify_tokens: u32,
}
