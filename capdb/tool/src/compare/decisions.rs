//! Decisions that differ: both databases are asked at, below and above every limit that either of them has.

use std::collections::BTreeSet;
use std::fmt;

use capdb::assembly::Index;
use capdb::decide::{AllReduceRequest, Decision, HostFacts, Request, Shape, Table, decide};
use capdb::quantity::Size;
use capdb::record::{AlgorithmId, Dtype, FusionId, Topology};
use capdb::resolve::{RecordError, Resolved};
use serde::Serialize;

/// A range of messages that are decided otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecisionChange {
    pub record: String,
    pub world_size: u32,
    pub topology: &'static str,
    pub request: String,
    /// Smallest and largest message, in bytes, that were asked and found changed in this way.
    pub from: u64,
    pub to: u64,
    pub old: String,
    pub new: String,
}

pub(super) fn compare(
    id: &str,
    old: (&Index, &Resolved),
    new: (&Index, &Resolved),
    changes: &mut Vec<DecisionChange>,
) -> Result<(), RecordError> {
    let tables = (Table::new(old.0, old.1)?, Table::new(new.0, new.1)?);
    let limits: BTreeSet<u64> = [old.1, new.1].iter().flat_map(|resolved| limits(resolved)).collect();
    let messages: BTreeSet<u64> = limits.iter().flat_map(|limit| [*limit, limit + 1]).chain([1]).collect();
    let world_sizes: BTreeSet<u32> = [old.1, new.1].iter().flat_map(|resolved| world_sizes(resolved)).collect();
    for world_size in world_sizes {
        for topology in Topology::ALL {
            for (name, request) in requests() {
                let line = Line { id, world_size, topology: *topology, request: &name };
                line.ask(&tables, &request, &messages, changes);
            }
        }
    }
    Ok(())
}

/// Every size that the record names.
fn limits(resolved: &Resolved) -> Vec<u64> {
    resolved
        .origins
        .keys()
        .filter(|pointer| pointer.contains("/max_message/"))
        .filter_map(|pointer| resolved.value.pointer(pointer))
        .chain(rungs(resolved))
        .filter_map(|value| serde_json::from_value::<Size>(value.clone()).ok().map(Size::bytes))
        .collect()
}

fn rungs(resolved: &Resolved) -> impl Iterator<Item = &serde_json::Value> {
    let ladders = resolved.value.pointer("/allreduce/preferred").and_then(|value| value.as_array());
    ladders
        .into_iter()
        .flatten()
        .filter_map(|ladder| ladder.get("ladder")?.as_array())
        .flatten()
        .filter_map(|rung| rung.get("up_to"))
}

/// World sizes of any row, and two that no row should have.
fn world_sizes(resolved: &Resolved) -> BTreeSet<u32> {
    let keys = resolved.origins.keys().filter(|pointer| pointer.contains("/max_message/"));
    let named = keys.filter_map(|pointer| pointer.rsplit('/').next()?.parse().ok());
    named.chain([2, 3, 8]).collect()
}

fn requests() -> Vec<(String, Request)> {
    let request = |allreduce, strict| Request { allreduce, strict, ..Request::default() };
    let mut list = vec![
        ("auto".to_owned(), request(AllReduceRequest::Auto, false)),
        ("auto, strict".to_owned(), request(AllReduceRequest::Auto, true)),
    ];
    for id in [AlgorithmId::OneShot, AlgorithmId::TwoShot, AlgorithmId::Multimem] {
        list.push((id.to_string(), request(AllReduceRequest::Algorithm(id), false)));
    }
    list
}

/// Questions that differ in the message only.
struct Line<'a> {
    id: &'a str,
    world_size: u32,
    topology: Topology,
    request: &'a str,
}

impl Line<'_> {
    fn ask(
        &self,
        tables: &(Table, Table),
        request: &Request,
        messages: &BTreeSet<u64>,
        changes: &mut Vec<DecisionChange>,
    ) {
        let host = HostFacts {
            topology: Some(self.topology),
            multicast: Some(matches!(self.topology, Topology::Nvswitch | Topology::MultiNodeNvlink)),
            ..HostFacts::default()
        };
        let mut open: Option<DecisionChange> = None;
        for message in messages {
            let shape = self.shape(*message);
            let answer = |table: &Table| describe(&decide(table, &host, &shape, request));
            let (old, new) = (answer(&tables.0), answer(&tables.1));
            match &mut open {
                Some(change) if old != new && change.old == old && change.new == new => change.to = *message,
                _ => {
                    changes.extend(open.take());
                    open = (old != new).then(|| self.change(*message, old, new));
                }
            }
        }
        changes.extend(open);
    }

    const fn shape(&self, message: u64) -> Shape {
        Shape {
            world_size: self.world_size,
            dtype: Dtype::Bf16,
            message: Some(message),
            fusion: FusionId::ResidualRmsnorm,
            heads: None,
            pipeline_parallel: 1,
            workspace: None,
        }
    }

    fn change(&self, message: u64, old: String, new: String) -> DecisionChange {
        DecisionChange {
            record: self.id.to_owned(),
            world_size: self.world_size,
            topology: self.topology.word(),
            request: self.request.to_owned(),
            from: message,
            to: message,
            old,
            new,
        }
    }
}

/// `selected one_shot + allreduce_residual_rmsnorm [value_guessed]`.
fn describe(decision: &Decision) -> String {
    let algorithm = decision.algorithm.map(|id| format!(" {id}")).unwrap_or_default();
    let fusion = decision.fusion.map(|id| format!(" + {id}")).unwrap_or_default();
    let reasons: Vec<&str> = decision.reasons.iter().map(|reason| reason.word()).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" [{}]", reasons.join(", ")) };
    format!("{}{algorithm}{fusion}{reasons}", decision.verdict.word())
}

impl fmt::Display for DecisionChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| Size::from_bytes(bytes).map_or_else(|_| bytes.to_string(), |size| size.to_string());
        let Self { record, world_size, topology, request, from, to, old, new } = self;
        write!(formatter, "{record}, {world_size} ranks on {topology}, {request}, {}", size(*from))?;
        if from != to {
            write!(formatter, " to {}", size(*to))?;
        }
        write!(formatter, ": {old} → {new}")
    }
}
