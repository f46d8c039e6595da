//! The form of `data/cases/*.yaml`, and of what `explain` is asked.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decide::{AllReduceRequest, FusionRequest};
use crate::quantity::{Size, Version};
use crate::record::{AlgorithmId, Dtype, FusionId, Topology};

/// A file of decision cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CasesFile {
    #[schemars(regex(pattern = r"^cases/1(\.[0-9]+)?$"))]
    pub schema: String,
    pub cases: Vec<Case>,
}

/// One decision case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_.-]*$"))]
    pub id: String,
    /// What the case teaches.
    #[schemars(length(min = 1))]
    pub why: String,
    pub given: Given,
    pub expect: Expect,
}

/// The machine, the message and the wish. A field left out is unknown, not false.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Id of an architecture; one without a record is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub arch: Option<String>,
    /// Id of a product, instead of `arch`; fills its usual multicast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub gpu: Option<String>,
    /// Ranks.
    #[schemars(range(min = 1, max = 1024))]
    pub world_size: u32,
    /// How the ranks used are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Topology")]
    pub topology: Option<Topology>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub multicast: Option<bool>,
    /// Element type of the message; bf16 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Dtype")]
    pub dtype: Option<Dtype>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Message")]
    pub message: Option<Message>,
    /// Output format of the fused kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantization")]
    pub quantization: Option<Quantization>,
    /// Symmetric memory that is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Size")]
    pub workspace: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "GivenStack")]
    pub stack: Option<GivenStack>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1024))]
    pub nodes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1024))]
    pub pipeline_parallel: Option<u32>,
    /// Whether the step runs as a CUDA graph. Limits do not differ by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub graphs: Option<bool>,
    /// Attention heads of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 65536))]
    pub heads: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Speculation")]
    pub speculation: Option<Speculation>,
    /// Environment switches; `"0"` and `0` are the same.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub environment: IndexMap<String, Environment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Facts")]
    pub facts: Option<Facts>,
    /// Laid over the resolved record; null removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub record: Option<serde_json::Value>,
    #[serde(default)]
    pub request: GivenRequest,
}

/// Bytes per rank, or rows of a hidden state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Message {
    Bytes(Size),
    Rows(Rows),
}

/// Rows of a hidden state. `tokens` counts every row of the message: for a verify pass, batch × verify tokens, root included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Taken from `speculation.draft_tokens` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 16777216))]
    pub tokens: Option<u64>,
    #[schemars(range(min = 1, max = 1048576))]
    pub hidden: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    None,
    Fp8,
    Nvfp4,
}

impl Quantization {
    /// The fused kernel with this output.
    pub const fn fusion(self) -> FusionId {
        match self {
            Self::None => FusionId::ResidualRmsnorm,
            Self::Fp8 => FusionId::ResidualRmsnormFp8,
            Self::Nvfp4 => FusionId::ResidualRmsnormNvfp4,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenStack {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub toolkit: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub driver: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub nccl: Option<Version>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Speculation {
    /// Tokens of a verify pass, root included.
    #[schemars(range(min = 1, max = 1024))]
    pub draft_tokens: u64,
}

/// Value of an environment variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Environment {
    Text(String),
    Number(i64),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "P2pAnswer")]
    pub p2p_probe: Option<P2pAnswer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MulticastAnswer")]
    pub multicast_probe: Option<MulticastAnswer>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub self_test_failed: Vec<AlgorithmId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub visible_gpus: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum P2pAnswer {
    Ok,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MulticastAnswer {
    Ok,
    Denied,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenRequest {
    #[serde(default)]
    pub allreduce: RequestedAllReduce,
    #[serde(default)]
    pub fusion: RequestedFusion,
    #[serde(default)]
    pub strict: bool,
    #[serde(default)]
    pub allow_fallback: bool,
    /// The user's flag: replaces the algorithm's own limit and the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Size")]
    pub max_message: Option<Size>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestedAllReduce {
    #[default]
    Auto,
    Nccl,
    OneShot,
    TwoShot,
    Multimem,
    SymmetricMemory,
}

impl RequestedAllReduce {
    pub const fn request(self) -> AllReduceRequest {
        match self {
            Self::Auto => AllReduceRequest::Auto,
            Self::Nccl => AllReduceRequest::Algorithm(AlgorithmId::Nccl),
            Self::OneShot => AllReduceRequest::Algorithm(AlgorithmId::OneShot),
            Self::TwoShot => AllReduceRequest::Algorithm(AlgorithmId::TwoShot),
            Self::Multimem => AllReduceRequest::Algorithm(AlgorithmId::Multimem),
            Self::SymmetricMemory => AllReduceRequest::SymmetricMemory,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestedFusion {
    #[default]
    Auto,
    Fused,
    Unfused,
}

impl RequestedFusion {
    pub const fn request(self) -> FusionRequest {
        match self {
            Self::Auto => FusionRequest::Auto,
            Self::Fused => FusionRequest::Fused,
            Self::Unfused => FusionRequest::Unfused,
        }
    }
}

/// Any subset of the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// `selected`, `fallback` or `refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = "^(selected|fallback|refused)$"))]
    pub verdict: Option<String>,
    /// An algorithm, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub allreduce: Option<String>,
    /// A fused kernel, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub fusion: Option<String>,
    /// These must be among the answer's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// An algorithm, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub nearest: Option<String>,
}
