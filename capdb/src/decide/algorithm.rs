//! Which algorithms can take a message, and in which order `auto` tries them.

use super::facts::{AllReduceRequest, HostFacts, Probe, Request, Shape};
use super::reason::{Reason, Reasons};
use super::table::{LadderRow, Row, Table};
use crate::record::{AlgorithmId, Topology};
use crate::resolve::Provenance;

/// What stands against one algorithm, and what must be said of it if it is taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strikes {
    pub reasons: Reasons,
    pub notes: Reasons,
}

/// Everything that strikes an algorithm out for this message.
pub(super) fn strikes(
    table: &Table,
    host: &HostFacts,
    shape: &Shape,
    request: &Request,
    id: AlgorithmId,
    stack: Reasons,
) -> Strikes {
    strikes_of(table, host, shape, request, (id, ladder_rung(table, host, shape, request, id)), stack)
}

/// The same for an algorithm that a ladder gives messages up to a size.
pub(super) fn strikes_of(
    table: &Table,
    host: &HostFacts,
    shape: &Shape,
    request: &Request,
    (id, rung): (AlgorithmId, Option<(u64, Provenance)>),
    stack: Reasons,
) -> Strikes {
    let self_test = Reasons::NONE.when(host.self_test_failed(id), Reason::SelfTestFailed);
    if id == AlgorithmId::Nccl {
        return Strikes { reasons: self_test, notes: Reasons::NONE };
    }
    let row = table.algorithms[id as usize].as_ref();
    let missing = row.is_none() && rung.is_none();
    let needs_multicast = id == AlgorithmId::Multimem || row.is_some_and(|row| row.needs_multicast);
    let mut reasons =
        self_test.union(stack).union(paths(table, host, needs_multicast)).when(missing, Reason::ArchEntryMissing);
    reasons = reasons.when(row.is_some_and(|row| !row.lists_dtype(shape.dtype)), Reason::DtypeUnsupported);
    let unlisted = rung.is_none() && !listed(table, host, row, id) && !path_is_missing(reasons);
    reasons = reasons.when(unlisted, Reason::TopologyNotListed);
    let (size, provenance) = judge_size(table, shape, request, row, rung);
    reasons = reasons.union(size);
    let note = match provenance {
        Provenance::Known => Reasons::NONE,
        Provenance::Inherited => Reasons::of(Reason::ValueInherited),
        Provenance::Guessed => Reasons::of(Reason::ValueGuessed),
    };
    if missing {
        return Strikes { reasons, notes: Reasons::NONE };
    }
    if request.strict {
        Strikes { reasons: reasons.union(note), notes: Reasons::NONE }
    } else {
        Strikes { reasons, notes: note }
    }
}

/// Physical paths: peer mappings, multicast, nodes, and whether they are known.
fn paths(table: &Table, host: &HostFacts, needs_multicast: bool) -> Reasons {
    let peer = host.peer_access();
    let probe_failed = host.p2p_probe == Some(Probe::Failed);
    let mut reasons = Reasons::NONE
        .when(peer == Some(false), Reason::NoPeerPath)
        .when(probe_failed, Reason::P2pProbeFailed)
        .when(host.topology.is_none() || peer.is_none(), Reason::FactUnknown)
        .when(host.spans_nodes(), Reason::MultiNode);
    if needs_multicast {
        let denied = host.multicast_probe == Some(Probe::Failed);
        let attempt =
            if host.multicast_probe == Some(Probe::Ok) { host.multicast.or(Some(true)) } else { host.multicast };
        let refused = table.multicast_absent || host.multicast_forbidden || denied;
        reasons = reasons
            .when(refused || attempt == Some(false), Reason::NoMulticast)
            .when(denied, Reason::MulticastDenied)
            .when(host.multicast_forbidden, Reason::DisabledByEnvironment)
            .when(!refused && attempt.is_none(), Reason::FactUnknown);
    }
    reasons
}

/// A missing path is named as what it is, never as a topology that a table does not list.
fn path_is_missing(reasons: Reasons) -> bool {
    [Reason::NoPeerPath, Reason::NoMulticast, Reason::MultiNode].into_iter().any(|reason| reasons.contains(reason))
}

/// Whether block and order allow the algorithm on this topology. An unknown topology is struck out as such.
fn listed(table: &Table, host: &HostFacts, row: Option<&Row>, id: AlgorithmId) -> bool {
    let Some(topology) = host.topology else { return true };
    table.orders[topology as usize].contains(&id) && row.is_none_or(|row| row.lists_topology(topology))
}

/// The limit that holds, whether the message fits it, and how far the limit may be relied on.
fn judge_size(
    table: &Table,
    shape: &Shape,
    request: &Request,
    row: Option<&Row>,
    rung: Option<(u64, Provenance)>,
) -> (Reasons, Provenance) {
    let world_size = shape.world_size;
    let over = |limit: u64| shape.message.is_some_and(|message| message > limit);
    let workspace = shape.workspace.is_some_and(|workspace| {
        shape.message.is_some_and(|message| message > workspace)
            || request.max_message.is_some_and(|user| user > workspace)
    });
    let mut reasons = Reasons::NONE.when(workspace, Reason::WorkspaceTooSmall);
    let built = rung.is_some() || row.is_none_or(|row| row.lists_world_size(world_size));
    reasons = reasons.when(!built, Reason::WorldSizeNotListed);
    let built_by = row
        .filter(|row| rung.is_none() && row.world_sizes.is_some())
        .map_or(Provenance::Known, |row| row.world_sizes_provenance);
    if let Some(user) = request.max_message {
        return (reasons.when(over(user), Reason::MessageOverLimit), built_by);
    }
    let own = match (rung, row.and_then(|row| row.limits.as_ref())) {
        (Some(rung), _) => Some(rung),
        (None, Some(limits)) => match limits.get(world_size) {
            Some(limit) => Some((limit.bytes, limit.provenance)),
            None => return (reasons.with(Reason::WorldSizeNotListed), built_by),
        },
        (None, None) => None,
    };
    let cap = match table.cap.as_ref().map(|cap| cap.get(world_size)) {
        Some(Some(limit)) => Some((limit.bytes, limit.provenance)),
        Some(None) => return (reasons.with(Reason::WorldSizeNotListed), built_by),
        None => None,
    };
    let block = row.map_or(Provenance::Known, |row| row.provenance);
    let (limit, provenance) = match (own, cap) {
        // An own limit below the cap is all that the decision rests on.
        (Some((own, provenance)), Some((cap, _))) if own <= cap => (own, provenance),
        (Some((_, own)), Some((cap, provenance))) => (cap, weaker(own, provenance)),
        (Some((own, provenance)), None) => (own, provenance),
        (None, Some((cap, provenance))) => (cap, weaker(block, provenance)),
        // A block that gives no limit, under no cap, says nothing about any size.
        (None, None) => return (reasons.when(row.is_some(), Reason::ArchEntryMissing), built_by),
    };
    (reasons.when(over(limit), Reason::MessageOverLimit), weaker(provenance, built_by))
}

fn weaker(a: Provenance, b: Provenance) -> Provenance {
    match (a, b) {
        (Provenance::Guessed, _) | (_, Provenance::Guessed) => Provenance::Guessed,
        (Provenance::Inherited, _) | (_, Provenance::Inherited) => Provenance::Inherited,
        _ => Provenance::Known,
    }
}

/// The ladder for this machine and message; under strict only one that may be relied on.
fn ladder<'a>(table: &'a Table, host: &HostFacts, shape: &Shape, request: &Request) -> Option<&'a LadderRow> {
    let ladder = table.ladder(shape.world_size, host.topology?, shape.dtype)?;
    (!request.strict || ladder.provenance == Provenance::Known).then_some(ladder)
}

/// Up to which size the ladder gives messages to `id`, if it does so for this message.
fn ladder_rung(
    table: &Table,
    host: &HostFacts,
    shape: &Shape,
    request: &Request,
    id: AlgorithmId,
) -> Option<(u64, Provenance)> {
    let ladder = ladder(table, host, shape, request)?;
    let message = shape.message.unwrap_or(1);
    let asked = matches!(request.allreduce, AllReduceRequest::Algorithm(_) | AllReduceRequest::SymmetricMemory);
    let first = ladder.rungs.iter().find(|rung| message <= rung.up_to)?;
    // Who asks for an algorithm by name gets it wherever the ladder has measured it, not only where it wins.
    let measured = ladder.rungs.iter().filter(|rung| rung.algorithm == id).map(|rung| rung.up_to).max();
    match measured {
        Some(up_to) if first.algorithm == id => Some((up_to.max(first.up_to), ladder.provenance)),
        Some(up_to) if asked && message <= up_to => Some((up_to, ladder.provenance)),
        _ => None,
    }
}

/// Whose fused kernel a ladder gives the message to, and up to which size.
pub(super) fn fused_rung(
    table: &Table,
    host: &HostFacts,
    shape: &Shape,
    request: &Request,
) -> Option<(AlgorithmId, (u64, Provenance))> {
    let ladder = ladder(table, host, shape, request)?;
    let message = shape.message.unwrap_or(1);
    let rung = ladder.fused.iter().find(|rung| message <= rung.up_to)?;
    Some((rung.algorithm, (rung.up_to, ladder.provenance)))
}

/// The algorithms in the order in which `auto` tries them.
pub(super) struct Rungs {
    ids: [Option<AlgorithmId>; AlgorithmId::ALL.len()],
}

impl Rungs {
    pub fn of(table: &Table, host: &HostFacts, shape: &Shape, request: &Request) -> Self {
        let mut rungs = Self { ids: [None; AlgorithmId::ALL.len()] };
        let message = shape.message.unwrap_or(1);
        let winner = ladder(table, host, shape, request)
            .and_then(|ladder| ladder.rungs.iter().find(|rung| message <= rung.up_to));
        if let Some(rung) = winner {
            rungs.push(rung.algorithm);
        }
        // Without a topology nothing but NCCL can be chosen; the fullest order names everything that is struck out.
        let topology = host.topology.unwrap_or(Topology::Nvswitch);
        for &id in &table.orders[topology as usize] {
            rungs.push(id);
        }
        rungs.push(AlgorithmId::Nccl);
        rungs
    }

    fn push(&mut self, id: AlgorithmId) {
        if self.contains(id) {
            return;
        }
        if let Some(free) = self.ids.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(id);
        }
    }

    pub fn contains(&self, id: AlgorithmId) -> bool {
        self.ids.contains(&Some(id))
    }

    pub fn iter(&self) -> impl Iterator<Item = AlgorithmId> {
        self.ids.iter().flatten().copied()
    }
}
