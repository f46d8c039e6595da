//! Rules of the decision on records written out here. The database's own cases are data (`data/cases`).

use super::*;
use crate::database::Database;
use crate::record::{Dtype, Topology};
use crate::resolve::{Layer, LayerKind, Resolved};
use crate::yaml;

const RECORD: &str = "
features: {multicast: probe}
allreduce:
  symmetric_memory: {max_message: {2: 64MiB, 4: 64MiB, 8: 128MiB}, evidence: {kind: upstream, source: x}}
  one_shot: {max_message: {2: 1MiB, 4: 512KiB, 8: 256KiB}, topologies: [nvswitch, nvlink_mesh, pcie_p2p], evidence: {kind: measured, source: x}}
  two_shot: {topologies: [nvswitch, nvlink_mesh], evidence: {kind: guessed, source: x}}
  multimem: {world_sizes: [4, 8], requires: [multicast], evidence: {kind: upstream, source: x}}
fusions:
  allreduce_residual_rmsnorm: {support: native, max_message: {4: 128KiB, 8: 128KiB}, evidence: {kind: measured, source: x}}
  allreduce_residual_rmsnorm_fp8: {support: absent, evidence: {kind: documented, source: x}}
";

fn record(text: &str) -> Resolved {
    let document = yaml::read("test.yaml", text.as_bytes());
    assert_eq!(document.problems, []);
    let node = document.root.unwrap();
    let layer = Layer { kind: LayerKind::Arch, id: "test", file: "test.yaml", bytes: text.as_bytes(), node: &node };
    Resolved::merge("test", Some("test"), None, &[layer])
}

fn table(text: &str) -> Table {
    Table::new(Database::embedded().index(), &record(text)).unwrap()
}

fn shape(world_size: u32, message: u64) -> Shape {
    Shape {
        world_size,
        dtype: Dtype::Bf16,
        message: Some(message),
        fusion: FusionId::ResidualRmsnorm,
        heads: None,
        pipeline_parallel: 1,
        workspace: None,
    }
}

fn on(topology: Topology) -> HostFacts {
    HostFacts { topology: Some(topology), multicast: Some(topology == Topology::Nvswitch), ..HostFacts::default() }
}

fn one(id: AlgorithmId) -> Request {
    Request { allreduce: AllReduceRequest::Algorithm(id), ..Request::default() }
}

const KIB: u64 = 1024;

#[test]
fn auto_takes_the_first_rung_that_fits_and_limits_are_inclusive() {
    let table = table(RECORD);
    let choose = |message| decide(&table, &on(Topology::Nvswitch), &shape(4, message), &Request::default());
    for (message, algorithm) in [
        (512 * KIB, AlgorithmId::OneShot),
        (512 * KIB + 1, AlgorithmId::Multimem),
        (64 << 20, AlgorithmId::Multimem),
        ((64 << 20) + 1, AlgorithmId::Nccl),
    ] {
        let decision = choose(message);
        assert_eq!((decision.verdict, decision.algorithm), (Verdict::Selected, Some(algorithm)), "{message}");
    }
}

#[test]
fn a_gap_above_makes_a_fallback_and_a_rule_does_not() {
    let table = table(RECORD);
    let without = HostFacts { multicast: Some(false), ..on(Topology::Nvswitch) };
    let decision = decide(&table, &without, &shape(4, 1 << 20), &Request::default());
    assert_eq!((decision.verdict, decision.algorithm), (Verdict::Fallback, Some(AlgorithmId::TwoShot)));
    assert!(decision.reasons.contains(Reason::NoMulticast) && decision.reasons.contains(Reason::ValueGuessed));
    // World size 2 is not in multimem's list, so that rung is struck out by a rule as well.
    let decision = decide(&table, &without, &shape(2, 2 << 20), &Request::default());
    assert_eq!((decision.verdict, decision.algorithm), (Verdict::Selected, Some(AlgorithmId::TwoShot)));
}

#[test]
fn an_explicit_request_is_met_or_refused_with_every_reason() {
    let table = table(RECORD);
    let decision = decide(
        &table,
        &HostFacts { multicast: Some(false), ..on(Topology::PcieP2p) },
        &shape(3, 24 * KIB),
        &one(AlgorithmId::Multimem),
    );
    assert_eq!((decision.verdict, decision.nearest), (Verdict::Refused, Some(AlgorithmId::Nccl)));
    assert_eq!(decision.reasons, Reasons::of(Reason::NoMulticast).with(Reason::WorldSizeNotListed));
    let forgiving = Request { allow_fallback: true, ..one(AlgorithmId::Multimem) };
    let decision = decide(&table, &on(Topology::PcieP2p), &shape(4, 24 * KIB), &forgiving);
    assert_eq!((decision.verdict, decision.algorithm), (Verdict::Fallback, Some(AlgorithmId::OneShot)));
    assert!(decision.reasons.contains(Reason::NoMulticast));
    let listed_nowhere = decide(
        &table,
        &HostFacts { multicast: Some(true), ..on(Topology::NvlinkMesh) },
        &shape(4, KIB),
        &one(AlgorithmId::Multimem),
    );
    assert_eq!(listed_nowhere.reasons, Reasons::of(Reason::TopologyNotListed));
}

#[test]
fn strict_strikes_guessed_values_out_without_a_fallback() {
    let table = table(RECORD);
    let strict = Request { strict: true, ..Request::default() };
    let decision = decide(&table, &on(Topology::NvlinkMesh), &shape(2, 2 << 20), &strict);
    assert_eq!((decision.verdict, decision.algorithm), (Verdict::Selected, Some(AlgorithmId::Nccl)));
    assert!(decision.reasons.contains(Reason::ValueGuessed));
    let decision = decide(
        &table,
        &on(Topology::NvlinkMesh),
        &shape(2, 2 << 20),
        &Request { strict: true, ..one(AlgorithmId::TwoShot) },
    );
    assert_eq!((decision.verdict, decision.nearest), (Verdict::Refused, Some(AlgorithmId::Nccl)));
}

#[test]
fn a_measured_ladder_wins_and_the_order_goes_on_above_it() {
    let ladder = "\n  preferred:\n    - {world_size: 2, topology: nvlink_bridge, ladder: [{up_to: 64KiB, use: nccl}, {up_to: 8MiB, use: two_shot}], evidence: {kind: measured, source: x}}\n    - {world_size: 4, topology: nvlink_mesh, dtype: bf16, ladder: [{up_to: 8KiB, use: two_shot}, {up_to: 16KiB, use: one_shot}], evidence: {kind: measured, source: x}}\nfusions:";
    let table = table(&RECORD.replace("\nfusions:", ladder));
    let bridge = HostFacts { p2p_probe: Some(Probe::Ok), ..on(Topology::NvlinkBridge) };
    let choose = |host: &HostFacts, world_size, message| {
        decide(&table, host, &shape(world_size, message), &Request::default()).algorithm.unwrap()
    };
    assert_eq!(choose(&bridge, 2, 64 * KIB), AlgorithmId::Nccl);
    assert_eq!(choose(&bridge, 2, 1 << 20), AlgorithmId::TwoShot);
    assert_eq!(choose(&bridge, 2, 9 << 20), AlgorithmId::Nccl);
    let mesh = on(Topology::NvlinkMesh);
    assert_eq!(choose(&mesh, 4, 8 * KIB), AlgorithmId::TwoShot);
    assert_eq!(choose(&mesh, 4, 9 * KIB), AlgorithmId::OneShot);
    assert_eq!(choose(&mesh, 4, 17 * KIB), AlgorithmId::OneShot);
}

#[test]
fn fusion_follows_the_algorithm_and_never_changes_the_verdict_under_auto() {
    let table = table(RECORD);
    let host = on(Topology::NvlinkMesh);
    let fused = decide(&table, &host, &shape(4, 128 * KIB), &Request::default());
    assert_eq!((fused.verdict, fused.fusion), (Verdict::Selected, Some(FusionId::ResidualRmsnorm)));
    let over = decide(&table, &host, &shape(4, 128 * KIB + 1), &Request::default());
    assert_eq!((over.verdict, over.fusion), (Verdict::Selected, None));
    assert!(over.reasons.contains(Reason::MessageOverLimit));
    let want = Request { fusion: FusionRequest::Fused, ..Request::default() };
    assert_eq!(decide(&table, &host, &shape(4, 128 * KIB + 1), &want).verdict, Verdict::Refused);
    let absent = Shape { fusion: FusionId::ResidualRmsnormFp8, ..shape(4, KIB) };
    assert!(decide(&table, &host, &absent, &want).reasons.contains(Reason::FusionArchUnsupported));
    let missing = Shape { fusion: FusionId::ResidualRmsnormNvfp4, ..shape(4, KIB) };
    assert!(decide(&table, &host, &missing, &want).reasons.contains(Reason::FusionNotListed));
}

#[test]
fn what_keeps_a_sum_unfused_is_placed_at_the_fusion() {
    let (resolved, host, shape) = (record(RECORD), on(Topology::NvlinkMesh), shape(4, 600 * KIB));
    let table = table(RECORD);
    let line = |text: &str| RECORD.lines().position(|line| line.trim_start().starts_with(text)).unwrap() + 1;
    let fusion = format!("test.yaml:{}", line("allreduce_residual_rmsnorm:"));
    let two_shot = one(AlgorithmId::TwoShot);
    for request in [Request::default(), two_shot, Request { max_message: Some(1 << 20), ..two_shot }] {
        let decision = decide(&table, &host, &shape, &request);
        let words = explain(&resolved, &host, &shape, &request, &decision);
        let over = |lines: &[ReasonLine]| {
            lines.iter().find(|line| line.reason == "message_over_limit").map(|line| line.at.clone())
        };
        assert_eq!((words.fusion, over(&words.reasons)), ("none", Some(fusion.clone())), "{words:?}");
        // What strikes an algorithm out keeps its own place.
        if request.max_message.is_none() {
            let struck = words.rejected.iter().find(|line| line.algorithm == "one_shot").unwrap();
            assert_eq!(over(&struck.reasons), Some(format!("test.yaml:{}", line("one_shot:"))));
        }
    }
}

#[test]
fn the_environment_and_a_denied_probe_stand_beside_the_missing_multicast() {
    let table = table(RECORD);
    let forbidden =
        HostFacts { multicast: Some(true), ..on(Topology::Nvswitch) }.with_environment([("NCCL_NVLS_ENABLE", "0")]);
    let reasons = decide(&table, &forbidden, &shape(4, KIB), &one(AlgorithmId::Multimem)).reasons;
    assert_eq!(reasons, Reasons::of(Reason::NoMulticast).with(Reason::DisabledByEnvironment));
    let denied = HostFacts { multicast: None, multicast_probe: Some(Probe::Failed), ..on(Topology::Nvswitch) };
    let reasons = decide(&table, &denied, &shape(4, KIB), &one(AlgorithmId::Multimem)).reasons;
    assert_eq!(reasons, Reasons::of(Reason::NoMulticast).with(Reason::MulticastDenied));
    let unknown = HostFacts { multicast: None, ..on(Topology::Nvswitch) };
    let decision = decide(&table, &unknown, &shape(4, 1 << 20), &Request::default());
    assert_eq!((decision.verdict, decision.algorithm), (Verdict::Fallback, Some(AlgorithmId::TwoShot)));
    assert!(decision.reasons.contains(Reason::FactUnknown));
}

#[test]
fn the_user_limit_replaces_both_limits_but_not_the_workspace() {
    let table = table(RECORD);
    let user = Request { max_message: Some(96 << 20), ..Request::default() };
    let host = on(Topology::PcieP2p);
    assert_eq!(decide(&table, &host, &shape(2, 80 << 20), &user).algorithm, Some(AlgorithmId::OneShot));
    let small = Shape { workspace: Some(8 << 20), ..shape(2, 80 << 20) };
    let decision = decide(
        &table,
        &host,
        &small,
        &Request { allreduce: AllReduceRequest::Algorithm(AlgorithmId::OneShot), ..user },
    );
    assert_eq!((decision.verdict, decision.reasons), (Verdict::Refused, Reasons::of(Reason::WorkspaceTooSmall)));
}

#[test]
fn an_unknown_architecture_is_served_on_nccl_loudly() {
    let table = Table::new(Database::embedded().index(), &Resolved::unknown("sm999")).unwrap();
    let decision = decide(&table, &on(Topology::Nvswitch), &shape(8, KIB), &Request::default());
    assert_eq!((decision.verdict, decision.algorithm), (Verdict::Fallback, Some(AlgorithmId::Nccl)));
    assert!(decision.reasons.contains(Reason::ArchEntryMissing));
}

#[test]
fn heads_and_gpus_are_judged_before_everything_else() {
    let table = table(RECORD);
    let shape = Shape { heads: Some(40), ..shape(6, KIB) };
    for request in [Request::default(), Request { allow_fallback: true, ..one(AlgorithmId::Nccl) }] {
        let decision = decide(&table, &on(Topology::Nvswitch), &shape, &request);
        assert_eq!((decision.verdict, decision.reasons), (Verdict::Refused, Reasons::of(Reason::HeadsNotDivisible)));
    }
}

#[test]
fn a_bad_stack_leaves_nccl_and_says_so_whatever_the_message() {
    let table = table(&format!("compile: {{targets: [sm_90a], min_toolkit: \"12.8\"}}\n{RECORD}"));
    let old = HostFacts { stack: Stack { toolkit: Some([12, 4, 0, 0]), ..Stack::default() }, ..on(Topology::Nvswitch) };
    for message in [KIB, 1 << 33] {
        let decision = decide(&table, &old, &shape(4, message), &Request::default());
        assert_eq!((decision.verdict, decision.algorithm), (Verdict::Fallback, Some(AlgorithmId::Nccl)));
        assert!(decision.reasons.contains(Reason::ToolkitTooOld));
    }
    assert_eq!(decide(&table, &old, &shape(4, KIB), &one(AlgorithmId::OneShot)).verdict, Verdict::Refused);
    assert_eq!(decide(&table, &old, &shape(4, KIB), &one(AlgorithmId::Nccl)).verdict, Verdict::Selected);
    let alone = decide(&table, &old, &shape(1, KIB), &Request::default());
    assert_eq!((alone.verdict, alone.algorithm), (Verdict::Fallback, None));
}
