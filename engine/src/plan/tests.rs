use std::path::PathBuf;

use capdb::database::Database;
use capdb::record::Topology;

use super::*;
use crate::model::ModelConfig;

fn shape(name: &str) -> ModelConfig {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/shapes").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    crate::load::parse_config(&path.display().to_string(), &text).unwrap()
}

fn gpus(id: &str, count: usize, facts: &GpuFacts) -> Machine {
    Machine::gpu(&Database::embedded(), id, count, facts).unwrap()
}

/// The story: Kimi K2.5 on eight PCIe cards.
fn story(allreduce: AllReduceChoice) -> PlanRequest {
    let speculation = SpeculationShape {
        verify_tokens: 8,
        steps: 7,
        draft_hidden: 7168,
        draft_vocabulary: 32000,
        draft_bytes: 3 << 30,
        draft_cache_bytes: 0,
    };
    PlanRequest {
        tensor_parallel: 8,
        allreduce,
        max_sequences: 16,
        context: Some(32768),
        speculation: Some(speculation),
        ..PlanRequest::new("kimi-k2.5", shape("kimi-k2.5.json"), gpus("rtx-pro-6000", 8, &GpuFacts::default()))
    }
}

#[test]
fn the_story_is_refused_before_anything_loads_and_says_why() {
    let plan = build(&story(AllReduceChoice::Multimem)).unwrap();
    assert_eq!(plan.verdict, PlanVerdict::Refused);
    assert!(
        plan.refusals.iter().any(|refusal| refusal.contains("no_multicast") && refusal.contains("verify")),
        "{:?}",
        plan.refusals
    );
    let verify = plan.site(Operation::AllReduce, Site::AttentionOutput, Phase::Verify).unwrap();
    assert_eq!((verify.rows, verify.message_bytes, verify.calls), (8, 112 * 1024, 61));
    assert!(verify.nearest.is_some());
    // Prefill follows the ladder unless it is asked for by name.
    let prefill = plan.site(Operation::AllReduce, Site::AttentionOutput, Phase::Prefill).unwrap();
    assert_ne!(prefill.verdict, PlanVerdict::Refused);
}

#[test]
fn auto_is_planned_with_assumptions_named_and_guesses_said() {
    let plan = build(&story(AllReduceChoice::Auto)).unwrap();
    assert_ne!(plan.verdict, PlanVerdict::Refused, "{plan}");
    assert!(plan.machine.assumed.iter().any(|fact| fact.contains("pcie_p2p")));
    assert!(plan.warnings.iter().any(|warning| warning.contains("value_guessed")), "{:?}", plan.warnings);
    // Its four-bit experts have no kernel yet, so it is planned and said to be no more than that.
    assert!(!plan.model.servable);
    assert!(plan.warnings.iter().any(|warning| warning.contains("cannot be served")), "{:?}", plan.warnings);
    let ladder = &plan.site(Operation::AllReduce, Site::MlpOutput, Phase::Verify).unwrap().ladder;
    assert!(ladder.windows(2).all(|pair| pair[0].up_to_bytes < pair[1].up_to_bytes));
    assert_eq!(ladder.last().unwrap().up_to_rows, 8 * 16);
}

/// Published for this machine with SGLang: 92.6 tokens/s plain, 54.1 and 96.1 with speculation.
#[test]
fn break_even_is_predicted_with_its_assumptions() {
    let prediction = build(&story(AllReduceChoice::Nccl)).unwrap().prediction.unwrap();
    let plain = 1.0 / prediction.decode_seconds;
    assert!((plain / 92.6 - 1.0).abs() < 0.25, "{plain} tokens/s: {prediction:?}");
    // A verify of 8 tokens reads nearly eight times the experts of one, and the draft passes meet as well.
    assert!((1.2..3.0).contains(&prediction.break_even), "{prediction:?}");
    assert!(prediction.verify_seconds > prediction.decode_seconds);
    assert!(prediction.assumptions.iter().any(|line| line.contains("124 meetings") && line.contains("assumed")));
    let plain = PlanRequest { speculation: None, ..story(AllReduceChoice::Auto) };
    assert_eq!(build(&plain).unwrap().prediction, None);
}

/// A file of four bits where the shapes say sixteen: no pass reads more than there is, and one rank meets nobody.
#[test]
fn a_prediction_rests_on_the_size_of_the_files() {
    let speculation = story(AllReduceChoice::Auto).speculation;
    let request = PlanRequest {
        speculation,
        ..PlanRequest::new("8b", shape("llama-3.1-8b.json"), gpus("h200", 1, &GpuFacts::default()))
    };
    let predict = |request: &PlanRequest| build(request).unwrap().prediction.unwrap();
    let (plain, quantised) =
        (predict(&request), predict(&PlanRequest { weight_bytes: Some(4_500_000_000), ..request }));
    assert!(quantised.decode_seconds < 0.5 * plain.decode_seconds, "{plain:?} {quantised:?}");
    let said = quantised.assumptions.join("\n");
    assert!(said.contains("of 4.50 GB; a verify") && !said.contains("meetings") && !said.contains("experts"), "{said}");
    let read: f64 = said.split("a decode reads ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap();
    assert!((4.0..=4.5).contains(&read), "{said}");
}

#[test]
fn parameters_and_memory_are_those_that_the_models_are_known_for() {
    let kimi = parameters(&shape("kimi-k2.5.json")) as f64;
    assert!((1.02e12..1.05e12).contains(&kimi), "{kimi}");
    let llama = parameters(&shape("llama-3.1-8b.json"));
    assert_eq!(llama, 8_030_261_248);
    let request = PlanRequest::new("8b", shape("llama-3.1-8b.json"), gpus("h200", 1, &GpuFacts::default()));
    let plan = build(&request).unwrap();
    assert_eq!(plan.memory.weights, 2 * llama);
    assert_eq!(plan.memory.cache_bytes_per_token, 2 * 2 * 8 * 128 * 32);
    assert!(plan.sites.is_empty());
    // Four bits a weight and a scale for 32 of them: about 0.6 TB over eight cards.
    let per_rank = build(&story(AllReduceChoice::Auto)).unwrap().memory.weights as f64;
    assert!((68e9..80e9).contains(&per_rank), "{per_rank}");
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_lower() {
    let request = PlanRequest {
        tensor_parallel: 2,
        ..PlanRequest::new("kimi", shape("kimi-k2.5.json"), gpus("rtx-pro-6000", 2, &GpuFacts::default()))
    };
    let plan = build(&request).unwrap();
    assert_eq!(plan.verdict, PlanVerdict::Refused);
    assert!(
        plan.refusals.iter().any(|refusal| refusal.starts_with("out of memory") && refusal.contains("more ranks")),
        "{:?}",
        plan.refusals
    );
}

/// A CPU with room for `pages` beside the weights, and no more, on each of its ranks.
fn small_cpu(tensor_parallel: usize, pages: u64) -> PlanRequest {
    let request = |memory| PlanRequest {
        tensor_parallel,
        memory_fraction: 0.5,
        ..PlanRequest::new(
            "1b",
            shape("llama-3.2-1b.json"),
            Machine::Cpu(HostCpu { name: "test".into(), threads: 2, memory }),
        )
    };
    let memory = build(&request(1 << 40)).unwrap().memory;
    let of_a_rank = memory.fixed() + pages * 16 * memory.cache_bytes_per_token;
    request(2 * of_a_rank * tensor_parallel as u64)
}

fn refusals(request: &PlanRequest) -> String {
    build(request).unwrap().refusals.concat()
}

#[test]
fn a_cpu_that_is_too_small_is_told_what_helps_on_a_cpu() {
    let (one, four) = (small_cpu(1, 40), small_cpu(4, 40));
    let alone = refusals(&one);
    for part in ["50 % of the ", "end other programs", "quantised", "lower --max-model-len to 640"] {
        assert!(alone.contains(part), "{part} in {alone}");
    }
    let shared = refusals(&four);
    assert!(shared.contains("shared by 4 ranks") && shared.contains("fewer ranks"), "{shared}");
    // No shorter context, smaller step or rank less makes room for these weights.
    let huge = refusals(&PlanRequest { config: shape("kimi-k2.5.json"), ..four.clone() });
    assert!(!huge.contains("--max-") && !huge.contains("fewer ranks"), "{huge}");
    for refusal in [&alone, &shared, &huge] {
        assert!(refusal.starts_with("out of memory"), "{refusal}");
        assert!(!refusal.contains("gpu") && !refusal.contains("GPU") && !refusal.contains("more ranks"), "{refusal}");
    }
}

#[test]
fn what_is_advised_to_a_small_cpu_helps() {
    let (one, four) = (small_cpu(1, 40), small_cpu(4, 40));
    let advised = refusals(&one);
    assert!(advised.contains("--max-model-len to 640") && advised.contains("--max-num-batched-tokens"), "{advised}");
    assert_eq!(refusals(&PlanRequest { context: Some(640), ..one.clone() }), "");
    assert_eq!(refusals(&PlanRequest { max_rows: 64, max_sequences: 4, ..one }), "");
    assert_eq!(refusals(&PlanRequest { tensor_parallel: 1, ..four }), "");
    // A cache of half the bytes, where that is enough.
    let exact = |pages| refusals(&PlanRequest { cache_bytes: 4, ..small_cpu(1, pages) });
    assert!(exact(80).contains("--cpu-precision fast"), "{}", exact(80));
    assert_eq!(refusals(&small_cpu(1, 80)), "");
    assert!(!exact(40).contains("--cpu-precision"), "{}", exact(40));
}

#[test]
fn more_of_a_gpu_is_advised_where_it_is_enough() {
    let request = |model| PlanRequest::new("model", shape(model), gpus("h200", 1, &GpuFacts::default()));
    let near = request("llama-3.1-70b.json");
    let refusal = build(&near).unwrap().refusals.concat();
    assert!(
        refusal.contains("90 % of a GPU's 139.00 GiB") && refusal.contains("--gpu-memory-utilization"),
        "{refusal}"
    );
    assert_eq!(refusals(&PlanRequest { memory_fraction: 1.0, ..near }), "");
    let far = refusals(&request("kimi-k2.5.json"));
    assert!(far.contains("out of memory") && !far.contains("--gpu-memory-utilization"), "{far}");
}

#[test]
fn strict_allow_fallback_and_the_environment_reach_every_site() {
    let h200 = |environment: Vec<(String, String)>| gpus("h200", 8, &GpuFacts { environment, ..GpuFacts::default() });
    let request = |machine| PlanRequest {
        tensor_parallel: 8,
        allreduce: AllReduceChoice::Multimem,
        ..PlanRequest::new("8b", shape("llama-3.1-8b.json"), machine)
    };
    let off = vec![("NCCL_NVLS_ENABLE".to_owned(), "0".to_owned())];
    let plan = build(&request(h200(off.clone()))).unwrap();
    assert_eq!(plan.verdict, PlanVerdict::Refused);
    let site = plan.site(Operation::AllReduce, Site::AttentionOutput, Phase::Decode).unwrap();
    assert!(site.reasons.iter().any(|reason| reason.reason == "disabled_by_environment"));
    let plan = build(&PlanRequest { allow_fallback: true, ..request(h200(off)) }).unwrap();
    assert_eq!(plan.verdict, PlanVerdict::Fallback);
    assert!(plan.fallbacks().count() > 0);
}

#[test]
fn heads_and_devices_are_checked() {
    let gpu = PlanRequest {
        tensor_parallel: 6,
        ..PlanRequest::new("8b", shape("llama-3.1-8b.json"), gpus("h200", 8, &GpuFacts::default()))
    };
    let plan = build(&gpu).unwrap();
    assert!(plan.refusals.iter().any(|refusal| refusal.contains("heads_not_divisible")), "{:?}", plan.refusals);
    let few = PlanRequest { tensor_parallel: 16, ..gpu };
    assert!(matches!(build(&few), Err(PlanError::TooFewDevices { tensor_parallel: 16, count: 8 })));
    let cpu = Machine::Cpu(HostCpu { name: "test".into(), threads: 2, memory: 24 << 30 });
    let plan = |ranks| {
        build(&PlanRequest {
            tensor_parallel: ranks,
            context: Some(4096),
            ..PlanRequest::new("8b", shape("llama-3.1-8b.json"), cpu.clone())
        })
    };
    assert!(matches!(plan(3), Err(PlanError::Shape(message)) if message.contains("1, 2, 4, 8, 16, 32 do")));
    let plan = plan(2).unwrap();
    assert!(plan.sites.iter().all(|site| site.algorithm.as_deref() == Some("shared_memory")), "{plan}");
}

#[test]
fn the_collective_table_says_what_the_plan_says() {
    let facts = GpuFacts { topology: Some(Topology::NvlinkMesh), multicast: Some(false), ..GpuFacts::default() };
    let request = PlanRequest {
        tensor_parallel: 2,
        ..PlanRequest::new("8b", shape("llama-3.1-8b.json"), gpus("h200", 2, &facts))
    };
    let plan = build(&request).unwrap();
    let table = plan.collectives();
    for site in &plan.sites {
        for rung in &site.ladder {
            let chosen = table.rung(site.operation, site.site, site.phase, rung.up_to_bytes);
            assert_eq!((&*chosen.algorithm, &*chosen.fusion), (rung.algorithm.as_str(), rung.fusion.as_str()));
        }
    }
}

/// Two H200 over NVLink, 8B shapes after `change`.
fn pair(change: impl FnOnce(&mut PlanRequest)) -> Plan {
    let facts = GpuFacts { topology: Some(Topology::NvlinkMesh), multicast: Some(false), ..GpuFacts::default() };
    let machine = gpus("h200", 2, &facts);
    let mut request = PlanRequest { tensor_parallel: 2, ..PlanRequest::new("8b", shape("llama-3.1-8b.json"), machine) };
    change(&mut request);
    build(&request).unwrap()
}

#[test]
fn windows_hold_the_largest_message_and_are_counted() {
    let plan = pair(|_| {});
    // Prefill of 2048 rows of 8 KiB by fused two-shot: parts and sums.
    assert_eq!(plan.half_window(), 2 * 2048 * 8192);
    assert_eq!(plan.memory.workspace, 2 * plan.half_window());
    let plan = pair(|request| {
        request.allreduce = AllReduceChoice::Nccl;
        request.allreduce_prefill = AllReduceChoice::Nccl;
    });
    assert_eq!((plan.half_window(), plan.memory.workspace), (0, 0));
    assert!(plan.collectives().rungs().all(|(_, rung)| &*rung.algorithm == "nccl"), "{plan}");
}

/// Eight H200 behind switches: with multicast some messages are summed by it, in a buffer that is counted; without it, or
/// where the environment forbids it, none is, and who asks for it by name hears why.
#[test]
fn multicast_memory_is_planned_where_it_may_be_used_alone() {
    let eight = |multicast, environment: &[(&str, &str)], allreduce| {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let topology = Some(Topology::Nvswitch);
        let facts = GpuFacts { topology, multicast: Some(multicast), environment, ..GpuFacts::default() };
        let request = PlanRequest::new("8b", shape("llama-3.1-8b.json"), gpus("h200", 8, &facts));
        build(&PlanRequest { tensor_parallel: 8, allreduce, allreduce_prefill: allreduce, ..request }).unwrap()
    };
    let with = eight(true, &[], AllReduceChoice::Auto);
    assert!(with.collectives().uses("multimem"), "{with}");
    assert_eq!(with.memory.workspace, 3 * with.half_window());
    let forbidden = [("NCCL_NVLS_ENABLE", "0")];
    for (multicast, environment) in [(false, &[][..]), (true, &forbidden[..])] {
        let without = eight(multicast, environment, AllReduceChoice::Auto);
        assert!(!without.collectives().uses("multimem"), "{without}");
        assert_eq!(without.memory.workspace, 2 * without.half_window());
        let asked = eight(multicast, environment, AllReduceChoice::Multimem);
        assert_eq!(asked.verdict, PlanVerdict::Refused);
        assert!(asked.refusals.iter().all(|refusal| refusal.contains("no_multicast")), "{:?}", asked.refusals);
    }
}

#[test]
fn what_fails_its_self_test_is_planned_around_one_by_one() {
    let around = |struck: &[&str]| {
        pair(|request| struck.iter().for_each(|algorithm| assert!(request.machine.strike(algorithm), "{algorithm}")))
    };
    assert!(around(&[]).collectives().uses("one_shot"));
    let plan = around(&["one_shot"]);
    assert!(!plan.collectives().uses("one_shot") && plan.collectives().uses("two_shot"), "{plan}");
    assert!(plan.fallbacks().any(|site| site.reasons.iter().any(|reason| reason.reason == "self_test_failed")));
    let plan = around(&["one_shot", "two_shot"]);
    assert!(plan.collectives().rungs().all(|(_, rung)| &*rung.algorithm == "nccl"), "{plan}");
    let refused = pair(|request| {
        request.allreduce = AllReduceChoice::OneShot;
        assert!(request.machine.strike("one_shot") && !request.machine.strike("one_shot"));
        assert!(!request.machine.strike("no such thing"));
    });
    assert_eq!(refused.verdict, PlanVerdict::Refused);
}

#[test]
fn a_wish_for_fusion_leaves_prefill_to_its_ladder() {
    let plan = pair(|request| request.fusion = FusionChoice::Fused);
    assert_eq!(plan.verdict, PlanVerdict::Selected, "{plan}");
    for site in [Site::AttentionOutput, Site::MlpOutput] {
        let of = |phase| plan.site(Operation::AllReduce, site, phase).unwrap();
        assert_ne!(of(Phase::Decode).fusion, "none", "{plan}");
        let auto = pair(|_| {});
        assert_eq!(of(Phase::Prefill).ladder, auto.site(Operation::AllReduce, site, Phase::Prefill).unwrap().ladder);
    }
}

#[test]
fn rows_that_no_fused_kernel_holds_are_not_fused() {
    let fused = |plan: &Plan| plan.sites.iter().any(|site| site.ladder.iter().any(|rung| rung.fusion != "none"));
    let wide = |request: &mut PlanRequest| request.config.hidden = 16384;
    assert!(fused(&pair(|_| {})));
    let plan = pair(wide);
    assert!(!fused(&plan), "{plan}");
    let site = plan.site(Operation::AllReduce, Site::MlpOutput, Phase::Decode).unwrap();
    assert!(site.reasons.iter().any(|reason| reason.at.contains("32768 bytes")), "{:?}", site.reasons);
    let plan = pair(|request| {
        wide(request);
        request.fusion = FusionChoice::Fused;
    });
    assert_eq!(plan.verdict, PlanVerdict::Refused);
}
