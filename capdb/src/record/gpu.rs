//! A record of one product: `data/gpu/*.yaml`. Measured rows live here, because an H200 is not an H100.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::algorithm::AllReduce;
use super::arch::Speculative;
use super::evidence::Evidence;
use super::fusion::Fusion;
use super::words::Topology;
use crate::quantity::{Bandwidth, Size};

/// One product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuRecord {
    /// Always `gpu/1`.
    #[schemars(regex(pattern = r"^gpu/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Equals the file's stem: lower case with hyphens.
    #[schemars(regex(pattern = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"))]
    pub id: String,
    /// For display; nothing may depend on it.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Names that the driver reports for it, exactly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_names: Vec<String>,
    /// Id of its architecture's record.
    pub arch: String,
    /// Memory of one GPU, as the vendor's GB are meant to be planned with: usable bytes where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Size")]
    pub memory: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bandwidth")]
    pub memory_bandwidth: Option<Bandwidth>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub multiprocessors: Option<u32>,
    /// Level-2 cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Size")]
    pub l2_cache: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Links")]
    pub links: Option<Links>,
    /// How several of them are usually joined in one machine; assumed where the machine was not asked.
    pub usual_topology: Topology,
    /// Whether that usual machine has multicast (NVSwitch). Only ever an assumption: an attempt decides.
    pub usual_multicast: bool,
    /// Evidence of memory, bandwidth, links and the usual topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
    /// Laid over the architecture's block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllReduce")]
    pub allreduce: Option<AllReduce>,
    /// Laid over the architecture's block.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fusions: IndexMap<String, Fusion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Speculative")]
    pub speculative: Option<Speculative>,
    /// Remarks that survive every tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Links of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Link")]
    pub nvlink: Option<Link>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Link")]
    pub pcie: Option<Link>,
    /// To the processor's memory, as on GH200 and GB200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Link")]
    pub c2c: Option<Link>,
}

/// One kind of link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    #[schemars(range(min = 1, max = 16))]
    pub generation: u32,
    /// Both directions together, all lanes, as vendors state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Bandwidth")]
    pub bandwidth: Option<Bandwidth>,
}
