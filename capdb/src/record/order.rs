//! In which order algorithms are tried.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::{AlgorithmId, Topology};

/// `order.yaml`: the order in which `auto` tries the algorithms, per topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderFile {
    #[schemars(regex(pattern = r"^order/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Each list ends with `nccl`.
    pub order: BTreeMap<Topology, Vec<AlgorithmId>>,
}
