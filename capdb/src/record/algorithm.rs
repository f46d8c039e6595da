//! All-reduce algorithms of a record: limits by world size, and measured ladders.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evidence::{Evidence, Reading};
use super::words::{AlgorithmId, Dtype, Topology};
use crate::quantity::Size;

/// A value per world size. The keys are the numbers of ranks.
pub type WorldSizes<T> = BTreeMap<u32, T>;

/// Everything about all-reduce.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllReduce {
    /// Caps every algorithm whose buffers live in symmetric memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SymmetricMemory")]
    pub symmetric_memory: Option<SymmetricMemory>,
    /// Every rank reads or receives every other rank's whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Algorithm")]
    pub one_shot: Option<Algorithm>,
    /// Reduce-scatter, then all-gather.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Algorithm")]
    pub two_shot: Option<Algorithm>,
    /// Reduction inside the switch, over multicast memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Algorithm")]
    pub multimem: Option<Algorithm>,
    /// Measured ladders: which algorithm up to which size. One wins over the order of `order.yaml` where it fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<Ladder>,
}

/// The largest message that symmetric memory takes, whatever the algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SymmetricMemory {
    /// Largest per-rank tensor by world size, inclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Size>")]
    pub max_message: Option<WorldSizes<Size>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
    /// Evidence of single keys, by path inside this block, e.g. `max_message.6`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub evidence_for: IndexMap<String, Evidence>,
    /// What other projects say, where they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
}

/// Fewest and most ranks of one all-reduce.
pub const WORLD_SIZE_LIMITS: std::ops::RangeInclusive<u32> = 2..=1024;

/// One all-reduce algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Algorithm {
    /// World sizes that the kernel is built for; no key, no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u32>")]
    pub world_sizes: Option<Vec<u32>>,
    /// Largest per-rank message by world size, inclusive. Without it the cap of `symmetric_memory` is the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<u32, Size>")]
    pub max_message: Option<WorldSizes<Size>>,
    /// Topologies that it runs on; no key, no restriction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Topology>")]
    pub topologies: Option<Vec<Topology>>,
    /// Element types; no key means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Dtype>")]
    pub dtypes: Option<Vec<Dtype>>,
    /// Features of the machine that it cannot do without, e.g. `multicast`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
    /// Evidence of single keys, by path inside this block, e.g. `max_message.6`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub evidence_for: IndexMap<String, Evidence>,
    /// What other projects say, where they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
}

/// A measured ladder for one world size, topology and element type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ladder {
    #[schemars(range(min = 2, max = 1024))]
    pub world_size: u32,
    pub topology: Topology,
    /// No key means every element type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Dtype")]
    pub dtype: Option<Dtype>,
    /// Ascending in `up_to`. Above the last one the order of `order.yaml` goes on.
    #[schemars(length(min = 1))]
    pub ladder: Vec<Rung>,
    /// The same for sums that are added and normalised in the same kernel, ascending in `up_to`, where that differs: which
    /// algorithm's fused kernel, for messages that `ladder` and limits give to a fused kernel of another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fused: Vec<Rung>,
    /// What the ladder's own choice took, ascending in `bytes`: what plans predict with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<MessageTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
}

impl Ladder {
    /// Why it cannot be followed: it has no rung, or its sizes do not ascend.
    pub fn fault(&self) -> Option<String> {
        let Self { world_size, topology, .. } = self;
        let fault = |what: String| Some(format!("the ladder of {world_size} ranks on {topology} {what}"));
        if self.ladder.is_empty() {
            return fault("has no rung".to_owned());
        }
        let rungs = [&self.ladder, &self.fused].into_iter().flat_map(|rungs| rungs.windows(2));
        let rungs = rungs.map(|pair| (pair[0].up_to, pair[1].up_to));
        let times = self.times.windows(2).map(|pair| (pair[0].bytes, pair[1].bytes));
        let (low, high) = rungs.chain(times).find(|(low, high)| high <= low)?;
        fault(format!("goes from {low} to {high}; its sizes must ascend"))
    }
}

/// Time of one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageTime {
    /// Of one rank.
    pub bytes: Size,
    /// Of one sum in a recorded graph, without a norm.
    #[schemars(range(min = 1))]
    pub nanoseconds: u32,
}

/// One rung of a ladder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// Largest per-rank message, inclusive.
    pub up_to: Size,
    #[serde(rename = "use")]
    pub algorithm: AlgorithmId,
}
