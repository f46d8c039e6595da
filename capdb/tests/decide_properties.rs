//! Laws of the decision, over every record of the compiled database and random machines, messages and wishes.

use capdb::database::Database;
use capdb::decide::{AllReduceRequest, FusionRequest, HostFacts, Probe, Request, Shape, Stack, Table, Verdict, decide};
use capdb::record::{AlgorithmId, Dtype, FusionId, ReasonClass, Topology};
use capdb::resolve::{Layer, LayerKind, Resolved};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn records() -> &'static [(String, Resolved, Table)] {
    static RECORDS: std::sync::OnceLock<Vec<(String, Resolved, Table)>> = std::sync::OnceLock::new();
    RECORDS.get_or_init(|| {
        let database = Database::embedded();
        let known = database.index().ids().into_iter().map(|id| (id.clone(), database.record(&id).unwrap()));
        let unknown = std::iter::once(("sm999".to_owned(), Resolved::unknown("sm999")));
        known
            .chain(unknown)
            .map(|(id, resolved)| (id, resolved.clone(), Table::new(database.index(), &resolved).unwrap()))
            .collect()
    })
}

fn probe() -> impl Strategy<Value = Option<Probe>> {
    option::of(select(vec![Probe::Ok, Probe::Failed]))
}

fn version() -> impl Strategy<Value = Option<[u32; 4]>> {
    option::of(select(vec![
        [12, 4, 0, 0],
        [12, 8, 0, 0],
        [13, 0, 0, 0],
        [525, 60, 13, 0],
        [580, 65, 6, 0],
        [2, 27, 7, 0],
        [2, 29, 7, 0],
    ]))
}

fn host() -> impl Strategy<Value = HostFacts> {
    let stack = (version(), version(), version()).prop_map(|(toolkit, driver, nccl)| Stack { toolkit, driver, nccl });
    (
        option::of(select(Topology::ALL.to_vec())),
        option::of(any::<bool>()),
        probe(),
        probe(),
        any::<bool>(),
        stack,
        option::of(1u32..4),
        option::of(0u32..17),
        0u8..16,
    )
        .prop_map(
            |(
                topology,
                multicast,
                multicast_probe,
                p2p_probe,
                multicast_forbidden,
                stack,
                nodes,
                visible_gpus,
                self_test_failed,
            )| HostFacts {
                topology,
                multicast,
                multicast_probe,
                p2p_probe,
                multicast_forbidden,
                stack,
                nodes,
                visible_gpus,
                self_test_failed,
            },
        )
}

fn shape() -> impl Strategy<Value = Shape> {
    let size = prop_oneof![
        1u64..1 << 20,
        (10u32..34).prop_map(|shift| 1 << shift),
        (10u32..34).prop_map(|shift| (1 << shift) + 1)
    ];
    (
        1u32..=16,
        select(Dtype::ALL.to_vec()),
        option::of(size.clone()),
        select(FusionId::ALL.to_vec()),
        option::of(1u32..130),
        1u32..3,
        option::of(size),
    )
        .prop_map(|(world_size, dtype, message, fusion, heads, pipeline_parallel, workspace)| Shape {
            world_size,
            dtype,
            message,
            fusion,
            heads,
            pipeline_parallel,
            workspace,
        })
}

fn request() -> impl Strategy<Value = Request> {
    let allreduce = prop_oneof![
        Just(AllReduceRequest::Auto),
        Just(AllReduceRequest::SymmetricMemory),
        select(AlgorithmId::ALL.to_vec()).prop_map(AllReduceRequest::Algorithm)
    ];
    let fusion = select(vec![FusionRequest::Auto, FusionRequest::Fused, FusionRequest::Unfused]);
    (allreduce, fusion, any::<bool>(), any::<bool>(), option::of((10u32..34).prop_map(|shift| 1u64 << shift))).prop_map(
        |(allreduce, fusion, strict, allow_fallback, max_message)| Request {
            allreduce,
            fusion,
            strict,
            allow_fallback,
            max_message,
        },
    )
}

fn record() -> impl Strategy<Value = &'static (String, Resolved, Table)> {
    (0..records().len()).prop_map(|at| &records()[at])
}

/// Lower is better; what `auto` gave.
fn rank(decision: &capdb::decide::Decision) -> usize {
    match decision.algorithm {
        Some(AlgorithmId::Nccl) => 2,
        Some(_) => 1,
        None => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_decision_keeps_its_laws((_, _, table) in record(), host in host(), shape in shape(), request in request()) {
        let decision = decide(table, &host, &shape, &request);
        prop_assert_eq!(decision, decide(table, &host, &shape, &request), "not deterministic");
        let auto = Request { allreduce: AllReduceRequest::Auto, fusion: FusionRequest::Auto, ..request };
        let nearest = decide(table, &host, &shape, &auto);
        let invalid = nearest.reasons.iter().any(|reason| reason.class() == ReasonClass::Invalid);
        prop_assert_eq!(nearest.verdict == Verdict::Refused, invalid, "auto refused although nothing is invalid: {:?}", nearest);
        prop_assert_eq!(decision.nearest, nearest.algorithm, "nearest is not what auto gives");
        if decision.verdict != Verdict::Selected {
            prop_assert!(!decision.reasons.is_empty(), "no reason for {:?}", decision);
        }
        if decision.verdict == Verdict::Refused {
            prop_assert!(!request.allow_fallback || invalid, "refused although a fallback is allowed");
            prop_assert_eq!((decision.algorithm, decision.fusion), (None, None));
        }
        if let (AllReduceRequest::Algorithm(wanted), Verdict::Selected) = (request.allreduce, decision.verdict) {
            prop_assert!(shape.world_size == 1 || decision.algorithm == Some(wanted), "selected something else than asked for");
        }
        prop_assert!(decision.fusion.is_none() || matches!(decision.algorithm, Some(AlgorithmId::OneShot | AlgorithmId::TwoShot)));
        prop_assert!(request.fusion != FusionRequest::Unfused || decision.fusion.is_none() || decision.verdict == Verdict::Fallback);
    }

    #[test]
    fn a_larger_limit_never_makes_a_smaller_message_worse((_, resolved, table) in record(), host in host(), shape in shape(), which in select(vec!["one_shot", "two_shot", "multimem"]), strict in any::<bool>()) {
        let pointer = format!("/allreduce/{which}/max_message");
        let Some(limits) = resolved.value.pointer(&pointer).and_then(|value| value.as_object()) else { return Ok(()) };
        let raised: String = limits.keys().map(|world_size| format!("{world_size}: 1024GiB, ")).collect();
        let text = format!("{{allreduce: {{{which}: {{max_message: {{{raised}}}}}}}}}");
        let document = capdb::yaml::read("raised", text.as_bytes());
        let node = document.root.unwrap();
        let mut more = resolved.clone();
        more.apply(&Layer { kind: LayerKind::Case, id: "raised", file: "raised", bytes: b"", node: &node });
        let request = Request { strict, ..Request::default() };
        let before = decide(table, &host, &shape, &request);
        let after = decide(&Table::new(Database::embedded().index(), &more).unwrap(), &host, &shape, &request);
        prop_assert!(rank(&after) <= rank(&before), "{:?} became {:?}", before, after);
    }
}

#[test]
fn every_record_and_world_size_gives_an_answer() {
    for (id, _, table) in records() {
        for world_size in 1..=16 {
            for &topology in Topology::ALL {
                let host = HostFacts { topology: Some(topology), multicast: Some(true), ..HostFacts::default() };
                let shape = Shape {
                    world_size,
                    dtype: Dtype::Bf16,
                    message: Some(16384),
                    fusion: FusionId::ResidualRmsnorm,
                    heads: None,
                    pipeline_parallel: 1,
                    workspace: None,
                };
                let decision = decide(table, &host, &shape, &Request::default());
                assert_ne!(decision.verdict, Verdict::Refused, "{id} at {world_size} over {topology}");
                assert_eq!(decision.algorithm.is_none(), world_size == 1, "{id} at {world_size} over {topology}");
            }
        }
    }
}
