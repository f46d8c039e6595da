//! A record of one place in another project's source that knows GPU architectures: `data/patch/*/*.yaml`.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::words::words;

words! {
    /// A project whose installed source can be checked.
    PatchProject {
        Sglang = "sglang",
        Vllm = "vllm",
    }
}

words! {
    /// What a table's rows are looked up by.
    PatchKey {
        /// The major number, e.g. 12.
        Major = "major",
        /// Major and minor as a text, e.g. "12.0".
        CapabilityText = "capability_text",
        /// Ten times the major plus the minor, e.g. 120.
        CapabilityInteger = "capability_integer",
        /// Three numbers: the capability as an integer, ranks and nodes, e.g. (103, 8, 1). The entries for one node are judged.
        CapabilityRanksNodes = "capability_ranks_nodes",
        /// No architecture: one row for every GPU.
        AnyGpu = "any_gpu",
    }
}

words! {
    /// Which capabilities a call in a gate lets through.
    PatchCall {
        /// The one that its argument names, e.g. 90.
        Exact = "exact",
        /// Every one with the same major as its argument, e.g. 100.
        Family = "family",
    }
}

words! {
    /// What a table's row holds.
    PatchRow {
        /// World size → bytes.
        Bytes = "bytes",
        /// World size → MiB.
        Mebibytes = "mebibytes",
        /// A list of world sizes.
        WorldSizes = "world_sizes",
    }
}

words! {
    /// The value of ours that a row is compared with.
    PatchValue {
        SymmetricMemoryMaxMessage = "symmetric_memory.max_message",
        MultimemWorldSizes = "multimem.world_sizes",
        OneShotMaxMessage = "one_shot.max_message",
        TwoShotMaxMessage = "two_shot.max_message",
        FusionMaxMessage = "allreduce_residual_rmsnorm.max_message",
    }
}

words! {
    /// What the machine must have for a feature to stay on.
    PatchNeed {
        Multicast = "multicast",
        /// Every pair of ranks joined by NVLink.
        FullNvlink = "full_nvlink",
    }
}

/// One table or gate of one project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchRecord {
    /// Always `patch/1`.
    #[schemars(regex(pattern = r"^patch/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Equals the file's stem.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"))]
    pub id: String,
    pub project: PatchProject,
    /// Semver range of releases whose source has this place. Pre-releases are outside unless they are named.
    #[schemars(with = "String")]
    pub versions: semver::VersionReq,
    /// Releases in which it was read.
    #[schemars(length(min = 1))]
    pub read_in: Vec<String>,
    /// What users call it.
    #[schemars(length(min = 1))]
    pub feature: String,
    /// How a user asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub enabled_by: Option<String>,
    /// Exactly one of `table` and `gate` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PatchTable")]
    pub table: Option<PatchTable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PatchGate")]
    pub gate: Option<PatchGate>,
    /// The kernel that a gate or a table stands in front of, where another package builds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PatchKernel")]
    pub kernel: Option<PatchKernel>,
    /// Tests elsewhere in the source that switch the feature off although the row is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PatchCondition>,
    /// Edits that people are known to make here. The report says what becomes of them on the card in question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_patches: Vec<String>,
    /// What a user can do, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<String>,
    pub evidence: Evidence,
}

/// A dictionary that is looked up by architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchTable {
    /// File that defines it, below site-packages.
    pub file: String,
    pub name: String,
    /// The class whose attribute it is; no key for a name of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub class: Option<String>,
    pub key: PatchKey,
    pub row: PatchRow,
    /// File that looks it up.
    pub lookup: String,
    /// Record of the table whose row must exist before this one is looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reached_after: Option<String>,
    /// What the lookup's default means where the row is missing and the source goes on silently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub default_means: Option<String>,
    /// The default is another limit that holds for every GPU, so that a missing row is worth a word and no gap.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_suffices: bool,
    /// Ours to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PatchValue")]
    pub database: Option<PatchValue>,
    /// Name of the kernel that the row is for, where it is not the one that our value is for: then a difference is not a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub other_kernel: Option<String>,
}

/// A boolean expression that lists architectures: either names that stand for helpers, or calls with a capability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchGate {
    pub file: String,
    /// Name in the expression → helper that it stands for.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub terms: IndexMap<String, String>,
    /// File that says which majors each helper means; needed with `terms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub majors: Option<String>,
    /// File whose dictionary says which helper an attribute of the platform stands for, where the terms are such attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub attributes: Option<String>,
    /// The function that the expression stands in; needed with `calls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub function: Option<String>,
    /// Method in the expression → which capabilities it lets through.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub calls: IndexMap<String, PatchCall>,
    /// How a user passes the gate without an edit, where it only chooses a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub overridden_by: Option<String>,
}

/// A kernel of another package, built for a list of majors that a function writes out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchKernel {
    /// Whose it is, as people know it.
    #[schemars(length(min = 1))]
    pub name: String,
    /// File below site-packages.
    pub file: String,
    pub function: String,
    /// Name of the argument that lists the majors.
    pub argument: String,
    /// What happens on another major.
    #[schemars(length(min = 1))]
    pub effect: String,
}

/// An `if` that warns and returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchCondition {
    pub needs: PatchNeed,
    pub file: String,
    /// Names that the test uses, all of them.
    #[schemars(length(min = 1))]
    pub names: Vec<String>,
    /// It matters for larger world sizes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub above_world_size: Option<u32>,
    /// What happens then.
    #[schemars(length(min = 1))]
    pub effect: String,
}
