//! What is known of the machine, the message and the wish. Everything may be unknown; unknown is not false.

use crate::record::{AlgorithmId, Dtype, FusionId, Topology};

/// Answer of a probe that ran on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Ok,
    /// It failed, died by a signal or ran into its deadline.
    Failed,
}

/// Versions of the software that is loaded. Unknown versions pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Compiler of the kernels.
    pub toolkit: Option<[u32; 4]>,
    pub driver: Option<[u32; 4]>,
    /// The library that is loaded, not the one that is installed.
    pub nccl: Option<[u32; 4]>,
}

/// The machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    pub topology: Option<Topology>,
    pub multicast: Option<bool>,
    pub multicast_probe: Option<Probe>,
    pub p2p_probe: Option<Probe>,
    /// A switch that forbids multicast is set in the environment.
    pub multicast_forbidden: bool,
    pub stack: Stack,
    pub nodes: Option<u32>,
    /// GPUs that the process sees on one node.
    pub visible_gpus: Option<u32>,
    /// Bit per `AlgorithmId`: its self-test gave a wrong answer or hung.
    pub self_test_failed: u8,
}

/// Environment switches that forbid the attempt to use multicast: name and forbidding value.
pub const MULTICAST_SWITCHES: &[(&str, &str)] =
    &[("NCCL_NVLS_ENABLE", "0"), ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"), ("NVSHMEM_DISABLE_NVLS", "1")];

impl HostFacts {
    /// Reads the environment switches.
    pub fn with_environment<'a>(mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.multicast_forbidden |= variables.into_iter().any(|pair| MULTICAST_SWITCHES.contains(&pair));
        self
    }

    pub fn with_failed_self_test(mut self, id: AlgorithmId) -> Self {
        self.self_test_failed |= 1 << id as u8;
        self
    }

    pub(super) fn self_test_failed(&self, id: AlgorithmId) -> bool {
        self.self_test_failed & (1 << id as u8) != 0
    }

    /// Whether peers map each other's memory; `None` when nobody knows.
    pub fn peer_access(&self) -> Option<bool> {
        match self.p2p_probe {
            Some(probe) => Some(probe == Probe::Ok),
            None => self.topology.map(Topology::has_peer_access),
        }
    }

    /// Whether the ranks span nodes that no NVLink joins.
    pub fn spans_nodes(&self) -> bool {
        match self.topology {
            Some(Topology::MultiNodeNvlink) => false,
            Some(topology) if topology.is_multi_node() => true,
            _ => self.nodes.is_some_and(|nodes| nodes > 1),
        }
    }
}

/// The message and the model around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ranks, at least 1.
    pub world_size: u32,
    pub dtype: Dtype,
    /// Bytes per rank; `None` when unknown, which no limit strikes out.
    pub message: Option<u64>,
    /// Fused kernel that fits the output format of the step.
    pub fusion: FusionId,
    /// Attention heads, which the ranks must divide.
    pub heads: Option<u32>,
    /// Pipeline stages.
    pub pipeline_parallel: u32,
    /// Symmetric memory that is allocated.
    pub workspace: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllReduceRequest {
    #[default]
    Auto,
    Algorithm(AlgorithmId),
    /// Any algorithm whose buffers live in symmetric memory.
    SymmetricMemory,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FusionRequest {
    #[default]
    Auto,
    Fused,
    Unfused,
}

/// The wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub allreduce: AllReduceRequest,
    pub fusion: FusionRequest,
    /// Inherited and guessed values do not count.
    pub strict: bool,
    pub allow_fallback: bool,
    /// The user's limit in bytes: replaces the algorithm's own and the cap.
    pub max_message: Option<u64>,
}
