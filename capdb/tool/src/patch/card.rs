//! The GPU in question, as the database knows it.

use std::collections::BTreeMap;

use capdb::assembly::ArchEntry;
use capdb::database::{Database, LookupError};
use capdb::record::{EvidenceKind, PatchKey, PatchNeed, PatchValue, Topology};
use capdb::resolve::{Origin, RecordError, Resolved};

use super::literal::Literal;
use super::table;

/// A product in its usual machine, or an architecture whose machine nobody named.
#[derive(Clone, Debug)]
pub struct Card {
    pub id: String,
    pub arch: String,
    pub major: i64,
    pub minor: i64,
    /// `None` where it is unknown.
    pub multicast: Option<bool>,
    pub topology: Option<Topology>,
    /// Other architectures of the database with the same major number: a row by major is theirs too.
    pub same_major: Vec<String>,
    /// What the caller says about the machine, in words; the rest is the product's usual one.
    pub given: Vec<&'static str>,
    record: Resolved,
}

/// Why a card cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("record `{0}` names no architecture with a compute capability")]
    NoCapability(String),
    #[error("{0} cannot have multicast ({1}), so it cannot be given")]
    NoMulticast(String, String),
}

/// A row of ours: world size → bytes, or the world sizes alone (bytes 0).
pub type Row = BTreeMap<u32, u64>;

/// A row of ours with where it comes from.
#[derive(Clone, Debug)]
pub struct OurRow {
    pub row: Row,
    /// By world size.
    pub origins: BTreeMap<u32, Origin>,
}

impl OurRow {
    /// Whether a value in it was never checked on this architecture.
    pub fn is_guess(&self) -> bool {
        self.origins.values().any(|origin| !origin.kind().counts_when_strict())
    }

    /// Whether somebody timed the value of a world size on this hardware.
    pub fn is_measured(&self, world_size: u32) -> bool {
        self.origins.get(&world_size).is_some_and(|origin| origin.kind() == EvidenceKind::Measured)
    }

    /// Each distinct evidence with its place.
    pub fn evidence(&self) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for origin in self.origins.values() {
            let source = origin.evidence.as_ref().map_or(String::new(), |evidence| format!(" by {}", evidence.source));
            let text = format!("{}{source}, {origin}", origin.kind());
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }
}

impl Card {
    pub fn new(database: &Database, name: &str) -> Result<Self, CardError> {
        let record = database.record(name)?;
        let arch = record.arch.clone().unwrap_or_else(|| record.id.clone());
        let entry = database.index().archs.get(&arch).ok_or_else(|| CardError::NoCapability(record.id.clone()))?;
        let capability = entry.compute_capability.split_once('.');
        let (major, minor) = capability
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .ok_or_else(|| CardError::NoCapability(record.id.clone()))?;
        let gpu = record.gpu.as_ref().and_then(|id| database.index().gpus.get(id));
        let absent = record.features()?.get("multicast").is_some_and(|support| support.to_string() == "absent");
        let multicast = if absent { Some(false) } else { gpu.map(|gpu| gpu.usual_multicast) };
        let topology = gpu.map(|gpu| gpu.usual_topology);
        let head = format!("{major}.");
        let same = |(id, entry): (&String, &ArchEntry)| {
            (*id != arch && entry.compute_capability.starts_with(&head)).then(|| id.clone())
        };
        let same_major = database.index().archs.iter().filter_map(same).collect();
        let id = record.id.clone();
        Ok(Self { id, arch, major, minor, multicast, topology, same_major, given: Vec::new(), record })
    }

    /// Puts what the caller knows about the machine in place of the product's usual machine. A topology without a switch
    /// has no multicast.
    pub fn on(mut self, topology: Option<Topology>, multicast: Option<bool>) -> Result<Self, CardError> {
        let absent = self.record.features()?.get("multicast").is_some_and(|support| support.to_string() == "absent");
        if absent && multicast == Some(true) {
            return Err(CardError::NoMulticast(self.id, format!("features.multicast of {}", self.arch)));
        }
        if let Some(topology) = topology {
            self.topology = Some(topology);
            self.given.push("topology");
            if !matches!(topology, Topology::Nvswitch | Topology::MultiNodeNvlink) {
                self.multicast = Some(false);
            }
        }
        if multicast.is_some() {
            self.multicast = multicast;
            self.given.push("multicast");
        }
        Ok(self)
    }

    /// The key that a table of this form has for the card.
    pub fn key(&self, form: PatchKey) -> Literal {
        match form {
            PatchKey::Major => Literal::Integer(self.major),
            PatchKey::CapabilityText => Literal::Text(format!("{}.{}", self.major, self.minor)),
            PatchKey::CapabilityInteger | PatchKey::CapabilityRanksNodes => {
                Literal::Integer(self.major * 10 + self.minor)
            }
            PatchKey::AnyGpu => table::any_gpu(),
        }
    }

    /// Whether the usual machine has what a feature needs.
    pub fn has(&self, need: PatchNeed) -> Option<bool> {
        match need {
            PatchNeed::Multicast => self.multicast,
            PatchNeed::FullNvlink => self.topology.map(|topology| {
                matches!(topology, Topology::Nvswitch | Topology::NvlinkMesh | Topology::MultiNodeNvlink)
            }),
        }
    }

    /// Our value, `None` where the record has none.
    pub fn ours(&self, value: PatchValue) -> Result<Option<OurRow>, RecordError> {
        let allreduce = self.record.allreduce()?;
        let (pointer, sizes) = match value {
            PatchValue::SymmetricMemoryMaxMessage => {
                ("/allreduce/symmetric_memory/max_message", allreduce.symmetric_memory.and_then(|it| it.max_message))
            }
            PatchValue::OneShotMaxMessage => {
                ("/allreduce/one_shot/max_message", allreduce.one_shot.and_then(|it| it.max_message))
            }
            PatchValue::TwoShotMaxMessage => {
                ("/allreduce/two_shot/max_message", allreduce.two_shot.and_then(|it| it.max_message))
            }
            PatchValue::FusionMaxMessage => {
                let fusion = self.record.fusions()?.swap_remove("allreduce_residual_rmsnorm");
                ("/fusions/allreduce_residual_rmsnorm/max_message", fusion.and_then(|it| it.max_message))
            }
            PatchValue::MultimemWorldSizes => {
                let pointer = "/allreduce/multimem/world_sizes";
                let sizes = allreduce.multimem.and_then(|it| it.world_sizes);
                return Ok(sizes.map(|sizes| {
                    let origin = self.record.origin(pointer);
                    let origins = origin.iter().flat_map(|origin| sizes.iter().map(|size| (*size, (*origin).clone())));
                    OurRow { origins: origins.collect(), row: sizes.iter().map(|size| (*size, 0)).collect() }
                }));
            }
        };
        Ok(sizes.map(|sizes| OurRow {
            origins: sizes
                .keys()
                .filter_map(|size| Some((*size, self.record.origin(&format!("{pointer}/{size}"))?.clone())))
                .collect(),
            row: sizes.iter().map(|(size, limit)| (*size, limit.bytes())).collect(),
        }))
    }
}
