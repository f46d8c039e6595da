//! A resolved record, compiled for deciding: sorted rows, bit sets and indices instead of maps and strings.

use indexmap::IndexMap;

use super::facts::HostFacts;
use super::reason::{Reason, Reasons};
use crate::assembly::Index;
use crate::quantity::Size;
use crate::record::{AlgorithmId, Dtype, EvidenceKind, Fusion, FusionId, StackRange, Support, Topology, WorldSizes};
use crate::resolve::{Provenance, RecordError, Resolved};

/// A limit of one world size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub world_size: u32,
    pub bytes: u64,
    pub provenance: Provenance,
}

/// Limits by world size, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits(Vec<Limit>);

impl Limits {
    pub fn get(&self, world_size: u32) -> Option<Limit> {
        self.0.binary_search_by_key(&world_size, |limit| limit.world_size).ok().map(|at| self.0[at])
    }
}

/// One algorithm or fusion: what restricts it. `None` means no restriction.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub limits: Option<Limits>,
    pub world_sizes: Option<Vec<u32>>,
    /// Provenance of `world_sizes`.
    pub world_sizes_provenance: Provenance,
    pub topologies: Option<u16>,
    pub dtypes: Option<u8>,
    pub needs_multicast: bool,
    /// Provenance of the block where no single value decides.
    pub provenance: Provenance,
    pub support: Support,
}

impl Row {
    pub fn lists_topology(&self, topology: Topology) -> bool {
        self.topologies.is_none_or(|set| set & (1 << topology as u16) != 0)
    }

    pub fn lists_dtype(&self, dtype: Dtype) -> bool {
        self.dtypes.is_none_or(|set| set & (1 << dtype as u8) != 0)
    }

    pub fn lists_world_size(&self, world_size: u32) -> bool {
        self.world_sizes.as_ref().is_none_or(|list| list.contains(&world_size))
    }
}

/// One rung of a measured ladder.
#[derive(Clone, Copy, Debug)]
pub(super) struct LadderRung {
    pub up_to: u64,
    pub algorithm: AlgorithmId,
}

#[derive(Clone, Debug)]
pub(super) struct LadderRow {
    pub world_size: u32,
    pub topology: Topology,
    pub dtype: Option<Dtype>,
    pub rungs: Vec<LadderRung>,
    /// Of fused kernels.
    pub fused: Vec<LadderRung>,
    pub provenance: Provenance,
}

/// First and last version of a closed range.
type VersionRange = ([u32; 4], [u32; 4]);

/// A record in the form that decisions are made from.
#[derive(Clone, Debug)]
pub struct Table {
    /// Whether a record exists at all.
    pub(super) known: bool,
    pub(super) multicast_absent: bool,
    pub(super) cap: Option<Limits>,
    /// By `AlgorithmId`; NCCL has none and needs none.
    pub(super) algorithms: [Option<Row>; AlgorithmId::ALL.len()],
    pub(super) ladders: Vec<LadderRow>,
    pub(super) fusions: [Option<Row>; FusionId::ALL.len()],
    /// By `Topology`.
    pub(super) orders: [Vec<AlgorithmId>; Topology::ALL.len()],
    min_toolkit: Option<[u32; 4]>,
    min_driver: Option<[u32; 4]>,
    driver_by_toolkit_major: Vec<(u32, [u32; 4])>,
    known_bad: Vec<[Option<VersionRange>; 3]>,
}

impl Table {
    /// Compiles a record. Fails where the merged record does not have the form of its schema.
    pub fn new(index: &Index, resolved: &Resolved) -> Result<Self, RecordError> {
        let allreduce = resolved.allreduce()?;
        let compile = resolved.compile()?;
        let cap = allreduce.symmetric_memory.as_ref().and_then(|cap| cap.max_message.as_ref());
        let algorithms = [
            ("one_shot", &allreduce.one_shot),
            ("two_shot", &allreduce.two_shot),
            ("multimem", &allreduce.multimem),
            ("nccl", &None),
        ];
        let rows = algorithms.map(|(name, block)| {
            block.as_ref().map(|block| Row {
                needs_multicast: block.requires.iter().any(|feature| feature == "multicast"),
                ..row(
                    resolved,
                    &format!("/allreduce/{name}"),
                    block.max_message.as_ref(),
                    block.world_sizes.as_ref(),
                    block.topologies.as_ref(),
                    block.dtypes.as_ref(),
                )
            })
        });
        let fusions = resolved.fusions()?;
        Ok(Self {
            known: resolved.arch.is_some() || !resolved.origins.is_empty(),
            multicast_absent: resolved.features()?.get("multicast") == Some(&Support::Absent),
            cap: cap.map(|map| limits(resolved, "/allreduce/symmetric_memory", map)),
            algorithms: rows,
            ladders: ladders(resolved, &allreduce.preferred),
            fusions: fusion_rows(resolved, &fusions),
            orders: orders(index),
            min_toolkit: compile.as_ref().map(|compile| compile.min_toolkit.parts()),
            min_driver: compile.as_ref().and_then(|compile| compile.min_driver.as_ref()).map(|version| version.parts()),
            driver_by_toolkit_major: index
                .stack
                .min_driver_by_toolkit_major
                .iter()
                .filter_map(|(major, version)| Some((major.parse().ok()?, version.parts())))
                .collect(),
            known_bad: known_bad(index, resolved),
        })
    }

    /// What strikes out every rung but NCCL.
    pub(super) fn stack_strikes(&self, host: &HostFacts) -> Reasons {
        let stack = &host.stack;
        let toolkit_too_old = stack.toolkit.zip(self.min_toolkit).is_some_and(|(have, need)| have < need);
        let by_toolkit = stack.toolkit.and_then(|toolkit| {
            self.driver_by_toolkit_major.iter().find(|(major, _)| *major == toolkit[0]).map(|(_, need)| *need)
        });
        let driver_too_old = stack.driver.is_some_and(|have| {
            self.min_driver.is_some_and(|need| have < need) || by_toolkit.is_some_and(|need| have < need)
        });
        let versions = [stack.toolkit, stack.driver, stack.nccl];
        let within = |range: &Option<([u32; 4], [u32; 4])>, version: Option<[u32; 4]>| match (range, version) {
            (None, _) => true,
            (Some((from, to)), Some(version)) => (*from..=*to).contains(&version),
            (Some(_), None) => false,
        };
        let bad = self
            .known_bad
            .iter()
            .any(|ranges| ranges.iter().zip(versions).all(|(range, version)| within(range, version)));
        Reasons::NONE
            .when(toolkit_too_old, Reason::ToolkitTooOld)
            .when(driver_too_old, Reason::DriverTooOld)
            .when(bad, Reason::KnownBadStack)
    }

    /// The measured ladder for a message, if there is one whose last rung is high enough.
    pub(super) fn ladder(&self, world_size: u32, topology: Topology, dtype: Dtype) -> Option<&LadderRow> {
        self.ladders.iter().find(|ladder| {
            ladder.world_size == world_size
                && ladder.topology == topology
                && ladder.dtype.is_none_or(|own| own == dtype)
        })
    }
}

fn provenance(resolved: &Resolved, pointer: &str) -> Provenance {
    resolved.origin(pointer).map_or(Provenance::Known, |origin| origin.provenance())
}

/// How far a block as a whole may be relied on: what its evidence says, or its first value where it has none.
fn block_provenance(resolved: &Resolved, block: &str) -> Provenance {
    resolved
        .origin(&format!("{block}/evidence"))
        .map_or_else(|| provenance(resolved, block), |origin| origin.provenance())
}

fn limits(resolved: &Resolved, block: &str, map: &WorldSizes<Size>) -> Limits {
    let limit = |(world_size, size): (&u32, &Size)| Limit {
        world_size: *world_size,
        bytes: size.bytes(),
        provenance: provenance(resolved, &format!("{block}/max_message/{world_size}")),
    };
    Limits(map.iter().map(limit).collect())
}

fn row(
    resolved: &Resolved,
    block: &str,
    max_message: Option<&WorldSizes<Size>>,
    world_sizes: Option<&Vec<u32>>,
    topologies: Option<&Vec<Topology>>,
    dtypes: Option<&Vec<Dtype>>,
) -> Row {
    Row {
        limits: max_message.map(|map| limits(resolved, block, map)),
        world_sizes: world_sizes.cloned(),
        world_sizes_provenance: provenance(resolved, &format!("{block}/world_sizes")),
        topologies: topologies.map(|list| list.iter().fold(0, |set, topology| set | 1 << *topology as u16)),
        dtypes: dtypes.map(|list| list.iter().fold(0, |set, dtype| set | 1 << *dtype as u8)),
        needs_multicast: false,
        provenance: block_provenance(resolved, block),
        support: Support::Native,
    }
}

fn fusion_rows(resolved: &Resolved, fusions: &IndexMap<String, Fusion>) -> [Option<Row>; FusionId::ALL.len()] {
    std::array::from_fn(|at| {
        let id = FusionId::ALL[at].word();
        let fusion = fusions.get(id)?;
        let block = format!("/fusions/{id}");
        let support = fusion.support?;
        let provenance = provenance(resolved, &format!("{block}/support"));
        Some(Row {
            support,
            provenance,
            ..row(
                resolved,
                &block,
                fusion.max_message.as_ref(),
                fusion.world_sizes.as_ref(),
                fusion.topologies.as_ref(),
                fusion.dtypes.as_ref(),
            )
        })
    })
}

fn ladders(resolved: &Resolved, preferred: &[crate::record::Ladder]) -> Vec<LadderRow> {
    // The list is one value, so its origin and evidence are those of the list, unless a ladder brings its own.
    let list = resolved.origins.get("/allreduce/preferred");
    let own = |evidence: &Option<crate::record::Evidence>| match (list, evidence) {
        (Some(origin), _) if origin.inherited => Provenance::Inherited,
        // Below an overlay's ladders stand those of the record, which may have come from a parent.
        (_, Some(evidence)) if evidence.kind == EvidenceKind::Inherited => Provenance::Inherited,
        (_, Some(evidence)) if evidence.kind.counts_when_strict() => Provenance::Known,
        (_, Some(_)) => Provenance::Guessed,
        (Some(origin), None) => origin.provenance(),
        (None, None) => Provenance::Guessed,
    };
    let rungs = |rungs: &[crate::record::Rung]| -> Vec<LadderRung> {
        rungs.iter().map(|rung| LadderRung { up_to: rung.up_to.bytes(), algorithm: rung.algorithm }).collect()
    };
    preferred
        .iter()
        .map(|ladder| LadderRow {
            world_size: ladder.world_size,
            topology: ladder.topology,
            dtype: ladder.dtype,
            rungs: rungs(&ladder.ladder),
            fused: rungs(&ladder.fused),
            provenance: own(&ladder.evidence),
        })
        .collect()
}

/// Order per topology; a topology without a list has NCCL alone.
fn orders(index: &Index) -> [Vec<AlgorithmId>; Topology::ALL.len()] {
    std::array::from_fn(|at| {
        index.order.order.get(&Topology::ALL[at]).cloned().unwrap_or_else(|| vec![AlgorithmId::Nccl])
    })
}

fn known_bad(index: &Index, resolved: &Resolved) -> Vec<[Option<VersionRange>; 3]> {
    let range = |range: &Option<StackRange>| range.as_ref().map(|range| (range.from.parts(), range.to.parts()));
    let applies =
        |archs: &[String]| archs.is_empty() || archs.iter().any(|arch| Some(arch.as_str()) == resolved.arch.as_deref());
    index
        .stack
        .known_bad
        .iter()
        .filter(|stack| applies(&stack.archs))
        .map(|stack| [range(&stack.toolkit), range(&stack.driver), range(&stack.nccl)])
        .collect()
}
