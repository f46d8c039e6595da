//! The machine that a plan is for: this CPU, or GPUs of the database that nobody needs to own.

use capdb::database::Database;
use capdb::decide::{HostFacts, MULTICAST_SWITCHES, Probe, Stack, Table};
use capdb::quantity::Version;
use capdb::record::{AlgorithmId, Topology};
use capdb::resolve::Resolved;

use super::error::PlanError;

/// The processor that the CPU backend runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCpu {
    pub name: String,
    pub threads: usize,
    /// Bytes of memory.
    pub memory: u64,
}

/// A machine.
#[derive(Clone, Debug)]
pub enum Machine {
    Cpu(HostCpu),
    Gpu(Box<GpuMachine>),
}

/// GPUs of one kind.
#[derive(Clone, Debug)]
pub struct GpuMachine {
    pub resolved: Resolved,
    pub table: Table,
    pub name: String,
    pub count: usize,
    pub host: HostFacts,
    /// Facts that come from the product's usual machine and not from the user or a probe.
    pub assumed: Vec<String>,
    /// Bytes of one GPU's memory; `None` where the record does not say.
    pub memory: Option<u64>,
    /// Bytes per second.
    pub bandwidth: Option<f64>,
    pub data_version: String,
}

/// What the user says of a GPU machine beside the product's name.
#[derive(Clone, Debug, Default)]
pub struct GpuFacts {
    pub topology: Option<Topology>,
    pub multicast: Option<bool>,
    pub nodes: Option<u32>,
    pub toolkit: Option<Version>,
    pub driver: Option<Version>,
    pub nccl: Option<Version>,
    /// Whether bytes got from every GPU to every other; only an attempt says it.
    pub p2p_probe: Option<bool>,
    /// Environment switches that forbid multicast are read from here: name and value.
    pub environment: Vec<(String, String)>,
}

impl GpuFacts {
    /// The switch that forbids multicast, as `NAME=value`, if one is set.
    pub fn forbidding_switch(&self) -> Option<String> {
        let forbids = |(name, value): &&(String, String)| MULTICAST_SWITCHES.contains(&(name.as_str(), value.as_str()));
        self.environment.iter().find(forbids).map(|(name, value)| format!("{name}={value}"))
    }

    /// The environment switches that forbid multicast, as they are set in this process.
    pub fn read_environment(mut self) -> Self {
        let switches = MULTICAST_SWITCHES.iter().map(|(name, _)| *name);
        self.environment = switches.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect();
        self
    }
}

fn algorithm_id(word: &str) -> Option<AlgorithmId> {
    AlgorithmId::ALL.iter().copied().find(|id| id.word() == word)
}

impl GpuMachine {
    /// Whether multicast memory may be used here; none where only an attempt would tell.
    pub fn multicast(&self) -> Option<bool> {
        if self.host.multicast_forbidden { Some(false) } else { self.host.multicast }
    }

    /// Whether the algorithm failed its test on this machine.
    pub(super) fn is_struck(&self, algorithm: &str) -> bool {
        algorithm_id(algorithm).is_some_and(|id| self.host.with_failed_self_test(id) == self.host)
    }
}

impl Machine {
    /// Notes that `algorithm` gave a wrong sum, or none, when it was tested on this machine: plans then go around it.
    /// False for a word that names no algorithm of GPUs, or one that is noted already.
    pub fn strike(&mut self, algorithm: &str) -> bool {
        let Self::Gpu(gpu) = self else { return false };
        let Some(id) = algorithm_id(algorithm) else { return false };
        let new = !gpu.is_struck(algorithm);
        gpu.host = gpu.host.with_failed_self_test(id);
        new
    }

    /// Whether its GPUs stand in several hosts.
    pub fn spans_hosts(&self) -> bool {
        let Self::Gpu(gpu) = self else { return false };
        gpu.host.nodes.is_some_and(|nodes| nodes > 1) || gpu.host.topology.is_some_and(Topology::is_multi_node)
    }

    /// `count` GPUs of a product (or of an architecture: then the topology must be given to be known).
    pub fn gpu(database: &Database, name: &str, count: usize, facts: &GpuFacts) -> Result<Self, PlanError> {
        let resolved = database.record(name)?;
        let table = Table::new(database.index(), &resolved)?;
        let product = resolved.gpu.as_ref().and_then(|id| database.index().gpus.get(id));
        let mut assumed = Vec::new();
        let topology = facts.topology.or_else(|| {
            product.map(|product| {
                assumed.push(format!("topology {} (the product's usual one)", product.usual_topology));
                product.usual_topology
            })
        });
        let multicast = facts.multicast.or_else(|| {
            product.map(|product| {
                assumed.push(format!("multicast {} (the product's usual machine)", product.usual_multicast));
                product.usual_multicast
            })
        });
        let parts = |version: &Option<Version>| version.as_ref().map(Version::parts);
        let stack = Stack { toolkit: parts(&facts.toolkit), driver: parts(&facts.driver), nccl: parts(&facts.nccl) };
        let visible = u32::try_from(count).ok();
        let p2p_probe = facts.p2p_probe.map(|arrived| if arrived { Probe::Ok } else { Probe::Failed });
        let host = HostFacts {
            topology,
            multicast,
            stack,
            nodes: facts.nodes,
            visible_gpus: visible,
            p2p_probe,
            ..HostFacts::default()
        };
        let host = host.with_environment(facts.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let display = product
            .map(|product| product.name.clone())
            .or_else(|| resolved.value.get("name").and_then(|name| name.as_str()).map(str::to_owned));
        Ok(Self::Gpu(Box::new(GpuMachine {
            name: display.unwrap_or_else(|| name.to_owned()),
            memory: product.and_then(|product| product.memory).map(|size| size.bytes()),
            bandwidth: product
                .and_then(|product| product.memory_bandwidth)
                .map(|bandwidth| bandwidth.bytes_per_second()),
            data_version: database.index().manifest.data_version.to_string(),
            resolved,
            table,
            count,
            host,
            assumed,
        })))
    }
}
