use std::path::PathBuf;

use super::conclude::{Fusing, Step, fused_ladder, fusing, ladder};
use super::*;
use crate::collective::Site;
use crate::model::ModelConfig;
use crate::plan::{AlgorithmId, Dtype, FusionId, GpuFacts, Machine, PlanRequest, PlanVerdict, Topology, build};
use crate::types::Phase;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tuning").join(name)
}

/// Figures of two H200, as they stand in docs/benchmarks.md.
fn recorded() -> Measurement {
    serde_json::from_str(&std::fs::read_to_string(data("two-h200.json")).unwrap()).unwrap()
}

fn overlay(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.yaml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn llama() -> ModelConfig {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/shapes/llama-3.1-8b.json");
    crate::load::parse_config("llama", &std::fs::read_to_string(path).unwrap()).unwrap()
}

fn planned(path: &Path, facts: &MachineFacts, strict: bool) -> crate::plan::Plan {
    let database = lay_tuning(Database::embedded(), path).unwrap();
    let given = GpuFacts { topology: Some(Topology::Nvswitch), multicast: Some(false), ..GpuFacts::default() };
    let machine = Machine::gpu(&database, "h200", 2, &given).unwrap();
    let tuning = TuningReport::new(&database, path, &machine, facts);
    let request = PlanRequest::new("llama", llama(), machine);
    build(&PlanRequest { tuning, tensor_parallel: 2, strict, max_sequences: 64, ..request }).unwrap()
}

#[test]
fn the_ladder_takes_the_fastest_and_does_not_flutter() {
    let point =
        |algorithm, bytes, microseconds| SumPoint { algorithm, dtype: Dtype::Bf16, bytes, microseconds, spread: 0.0 };
    let (one, two, nccl) = (AlgorithmId::OneShot, AlgorithmId::TwoShot, AlgorithmId::Nccl);
    let sums = [
        point(one, 100, 1.0),
        point(two, 100, 2.0),
        // Slower by one percent: within the spread, so one-shot stays.
        point(one, 200, 2.02),
        point(two, 200, 2.0),
        point(one, 300, 4.0),
        point(two, 300, 3.0),
        // Neither of ours takes it.
        point(nccl, 400, 9.0),
    ];
    let steps = ladder(&sums, Dtype::Bf16);
    let step = |up_to, algorithm| Step { up_to, algorithm };
    assert_eq!(steps, [step(200, one), step(300, two), step(400, nccl)]);
    assert_eq!(ladder(&sums, Dtype::F32), []);
}

#[test]
fn fusing_ends_where_it_first_costs() {
    let mut group = recorded().groups.remove(0);
    let steps = ladder(&group.sums, Dtype::Bf16);
    assert_eq!(fusing(&group, &steps, FusionId::ResidualRmsnorm), Fusing::UpTo(64 * 7168 * 2));
    // One width is enough: a limit holds for every model.
    for norm in group.norms.iter_mut().filter(|norm| norm.fused && (norm.rows, norm.width) == (16, 4096)) {
        norm.microseconds = 5.0;
    }
    assert_eq!(fusing(&group, &steps, FusionId::ResidualRmsnorm), Fusing::UpTo(8 * 7168 * 2));
    group.norms.iter_mut().filter(|norm| norm.fused).for_each(|norm| norm.microseconds *= 10.0);
    assert!(matches!(fusing(&group, &steps, FusionId::ResidualRmsnorm), Fusing::Never(_)));
    group.norms.clear();
    assert_eq!(fusing(&group, &steps, FusionId::ResidualRmsnorm), Fusing::Unmeasured);
}

/// Sums of 512 KiB are faster by two_shot, and by one_shot where the norm is in the kernel: as four ranks measured.
#[test]
fn a_fused_kernel_is_chosen_by_its_own_times() {
    let mut measurement = recorded();
    let slow = |sum: &&mut SumPoint| sum.algorithm == AlgorithmId::OneShot && sum.bytes > 256 << 10;
    measurement.groups[0].sums.iter_mut().filter(slow).for_each(|sum| sum.microseconds *= 10.0);
    let group = &measurement.groups[0];
    let steps = fused_ladder(group, 64 * 7168 * 2);
    assert_eq!(steps, [Step { up_to: 64 * 7168 * 2, algorithm: AlgorithmId::OneShot }]);
    assert_eq!(fused_ladder(group, 1), []);
    let tuned = tune(Database::embedded(), &measurement).unwrap();
    assert!(tuned.text.contains("fused: [{up_to: 896KiB, use: one_shot}]"), "{}", tuned.text);
    assert!(tuned.lines.iter().any(|line| line.ends_with("one_shot to 896KiB")), "{:?}", tuned.lines);
    let (_folder, path) = overlay(&tuned.text);
    let plan = planned(&path, &MachineFacts::default(), true);
    let rung = |site: Site| {
        let site = plan.sites.iter().find(|own| own.site == site && own.phase == Phase::Decode).unwrap();
        let rung = site.ladder.iter().find(|rung| rung.up_to_rows >= 64).unwrap();
        (rung.algorithm.clone(), rung.fusion.clone())
    };
    assert_eq!(rung(Site::MlpOutput), ("one_shot".to_owned(), "allreduce_residual_rmsnorm".to_owned()));
    assert_eq!(rung(Site::Embedding), ("two_shot".to_owned(), "none".to_owned()));
}

/// The same measurement gives the same file, the file opens, and the plan follows it: at every size that was measured
/// its choice is within five percent of the best.
#[test]
fn a_recorded_measurement_becomes_the_plan() {
    let measurement = recorded();
    let tuned = tune(Database::embedded(), &measurement).unwrap();
    assert_eq!(tuned.text, tune(Database::embedded(), &measurement).unwrap().text);
    let (_folder, path) = overlay(&tuned.text);
    let plan = planned(&path, &MachineFacts::default(), true);
    assert_eq!(plan.verdict, PlanVerdict::Selected, "{plan}");
    assert_eq!(plan.tuning.as_ref().map(|tuning| tuning.differences.len()), Some(0));
    let site = &plan.sites[0];
    assert_eq!((site.algorithm.as_deref(), site.fusion.as_str()), (Some("one_shot"), "allreduce_residual_rmsnorm"));
    let collectives = plan.collectives();
    let key = (site.operation, site.site, site.phase);
    for sum in measurement.groups[0].sums.iter().filter(|sum| sum.bytes <= 256 << 10) {
        let chosen = collectives.rung(key.0, key.1, key.2, sum.bytes).algorithm.to_string();
        let time = |name: &str| {
            let same = |other: &&SumPoint| other.bytes == sum.bytes && other.algorithm.word() == name;
            measurement.groups[0].sums.iter().find(same).map_or(f64::MAX, |other| other.microseconds)
        };
        let best = AlgorithmId::ALL.iter().map(|id| time(id.word())).fold(f64::MAX, f64::min);
        assert!(time(&chosen) <= 1.05 * best, "{} bytes: {chosen}", sum.bytes);
    }
}

/// Each output of the fused kernel has a limit of its own; what no figure is of keeps the record's.
#[test]
fn quantised_outputs_have_limits_of_their_own() {
    let mut measurement = recorded();
    let fused: Vec<NormPoint> = measurement.groups[0].norms.iter().filter(|norm| norm.fused).cloned().collect();
    for (output, slower) in [(FusionId::ResidualRmsnormFp8, 1.0), (FusionId::ResidualRmsnormNvfp4, 10.0)] {
        let point = |norm: &NormPoint| NormPoint { output, microseconds: norm.microseconds * slower, ..norm.clone() };
        measurement.groups[0].norms.extend(fused.iter().map(point));
    }
    // From 32 rows on fp8 takes longer.
    for norm in measurement.groups[0].norms.iter_mut() {
        norm.microseconds *= if norm.output == FusionId::ResidualRmsnormFp8 && norm.rows >= 32 { 3.0 } else { 1.0 };
    }
    let limits = |database: &Database| {
        let fusions = database.record("h200").unwrap().fusions().unwrap();
        let limit = |id: &FusionId| fusions[id.word()].max_message.as_ref().and_then(|sizes| sizes.get(&2)).copied();
        FusionId::ALL.iter().map(limit).map(|size| size.map(|size| size.bytes())).collect::<Vec<_>>()
    };
    let tuned = tune(Database::embedded(), &measurement).unwrap();
    let (_folder, path) = overlay(&tuned.text);
    let found = limits(&lay_tuning(Database::embedded(), &path).unwrap());
    assert_eq!(found, [Some(64 * 7168 * 2), Some(16 * 7168 * 2), Some(1)], "{}", tuned.text);
    assert!(tuned.lines.iter().any(|line| line.contains("residual, norm and fp8 in the same kernel to 224KiB")));
    let tuned = tune(Database::embedded(), &recorded()).unwrap();
    let (_folder, path) = overlay(&tuned.text);
    let (found, before) = (limits(&lay_tuning(Database::embedded(), &path).unwrap()), limits(&Database::embedded()));
    assert_eq!(found[1..], before[1..]);
}

#[test]
fn the_records_other_ladders_stay() {
    let tuned = tune(Database::embedded(), &recorded()).unwrap();
    let (_folder, path) = overlay(&tuned.text);
    let database = lay_tuning(Database::embedded(), &path).unwrap();
    let ladders = |database: &Database| database.record("h200").unwrap().allreduce().unwrap().preferred;
    let (before, after) = (ladders(&Database::embedded()), ladders(&database));
    let of = |ladders: &[capdb::record::Ladder], ranks| {
        ladders.iter().filter(|ladder| ladder.world_size == ranks).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of(&before, 8), of(&after, 8));
    assert_ne!(of(&before, 2), of(&after, 2));
    assert_eq!(of(&after, 2).len(), 1, "the measured one replaces the record's");
}

#[test]
fn the_cap_follows_what_was_measured() {
    let tuned = tune(Database::embedded(), &Measurement { record: "h100-sxm".to_owned(), ..recorded() }).unwrap();
    let (_folder, path) = overlay(&tuned.text);
    let database = lay_tuning(Database::embedded(), &path).unwrap();
    let cap = |database: &Database, ranks| {
        let allreduce = database.record("h100-sxm").unwrap().allreduce().unwrap();
        allreduce.symmetric_memory.unwrap().max_message.unwrap()[&ranks].bytes()
    };
    assert!(cap(&Database::embedded(), 2) < 128 << 20);
    assert_eq!(cap(&database, 2), 128 << 20);
    assert_eq!(cap(&database, 8), cap(&Database::embedded(), 8));
}

#[test]
fn another_machine_is_a_named_warning_and_under_strict_a_refusal() {
    let tuned = tune(Database::embedded(), &recorded()).unwrap();
    let (_folder, path) = overlay(&tuned.text);
    let here = MachineFacts {
        gpu: Some("NVIDIA H200".to_owned()),
        driver: Some("590.1".to_owned()),
        nccl: Some("2.28.3".to_owned()),
        kernels: None,
        multicast: Some(false),
        topology: Some((2, Topology::Nvswitch)),
    };
    let plan = planned(&path, &here, false);
    assert_eq!(plan.verdict, PlanVerdict::Selected);
    let warning = plan.warnings.iter().find(|warning| warning.contains("tuning_mismatch")).expect("a warning");
    assert!(warning.contains("driver 580.159.04 there and 590.1 here"), "{warning}");
    let plan = planned(&path, &here, true);
    assert_eq!(plan.verdict, PlanVerdict::Refused);
    assert!(plan.refusals.iter().any(|refusal| refusal.contains("tuning_mismatch")), "{:?}", plan.refusals);
    // What was measured without multicast says nothing of a machine that has it.
    let plan = planned(&path, &MachineFacts { multicast: Some(true), ..MachineFacts::default() }, false);
    assert!(plan.warnings.iter().any(|warning| warning.contains("multicast false there and true here")), "{plan}");
    let fits = MachineFacts { driver: Some("580.159.04".to_owned()), ..here };
    assert_eq!(planned(&path, &fits, true).verdict, PlanVerdict::Selected);
}

#[test]
fn what_is_no_measurement_is_refused_with_its_reason() {
    let failed = |change: &dyn Fn(&mut Measurement)| {
        let mut measurement = recorded();
        change(&mut measurement);
        tune(Database::embedded(), &measurement).unwrap_err().to_string()
    };
    assert!(failed(&|m| m.schema = "measurement/2".to_owned()).contains("measurement/2"));
    assert!(failed(&|m| m.groups.clear()).contains("no figures"));
    assert!(failed(&|m| m.groups[0].sums[0].microseconds = f64::NAN).contains("NaN"));
    assert!(failed(&|m| m.groups[0].norms[0].microseconds = 0.0).contains("one_shot with norm in one kernel"));
    assert!(failed(&|m| m.groups[0].world_size = 1).contains("1 ranks"));
    assert!(failed(&|m| m.groups.push(m.groups[0].clone())).contains("measured twice"));
    assert!(failed(&|m| m.record = "h2000".to_owned()).contains("no record `h2000`"));
    assert!(failed(&|m| m.date = "yesterday".to_owned()).contains("`yesterday` is not a date"));
    assert!(failed(&|m| m.driver = "banana".to_owned()).contains("`banana` is not a version"));
    assert!(failed(&|m| m.groups[0].sums[0].spread = -5.0).contains("spread"));
    assert!(failed(&|m| m.groups[0].sums.extend_from_within(..1)).starts_with("2 ranks: "));
}

#[test]
fn a_file_that_is_no_tuning_is_refused() {
    let refused = |text: &str| {
        let (_folder, path) = overlay(text);
        lay_tuning(Database::embedded(), &path).unwrap_err().to_string()
    };
    assert!(refused("schema: overlay/1\napplies_to: h2000\n").contains("there is no record `h2000` (known are "));
    assert!(refused("schema: overlay/1\n").contains("applies_to"));
    assert!(refused("a: [").contains("error"));
    let text = tune(Database::embedded(), &recorded()).unwrap().text;
    assert!(refused(&text.replace("overlay/1", "overlay/9")).contains("newer than this program"));
    let (rung, lower) = ("{up_to: 128MiB, use: two_shot}", "{up_to: 1KiB, use: two_shot}");
    assert!(refused(&text.replace(rung, lower)).contains("must ascend"));
    let missing = lay_tuning(Database::embedded(), Path::new("/nowhere/site.yaml")).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/site.yaml"), "{missing}");
}

/// A product whose fused kernel was only guessed to run, on a topology and with a number of ranks that its record does
/// not list.
#[test]
fn what_was_measured_counts_where_the_record_only_guesses() {
    let mut measurement = recorded();
    measurement.record = "rtx-pro-6000".to_owned();
    measurement.groups[0].world_size = 3;
    measurement.groups[0].topology = Topology::PcieP2p;
    let tuned = tune(Database::embedded(), &measurement).unwrap();
    assert!(tuned.text.contains("world_sizes: [2, 3, "), "{}", tuned.text);
    assert!(tuned.lines.iter().any(|line| line.contains("one_shot to 2MiB")), "{:?}", tuned.lines);
}

/// The times of the ladder are what speculation's break-even is predicted with.
#[test]
fn predictions_rest_on_measured_times() {
    let tuned = tune(Database::embedded(), &recorded()).unwrap();
    let (_folder, path) = overlay(&tuned.text);
    let database = lay_tuning(Database::embedded(), &path).unwrap();
    let predicted = |database: &Database, allreduce| {
        let given = GpuFacts { topology: Some(Topology::Nvswitch), multicast: Some(false), ..GpuFacts::default() };
        let machine = Machine::gpu(database, "h200", 2, &given).unwrap();
        let speculation = crate::plan::SpeculationShape {
            verify_tokens: 8,
            steps: 3,
            draft_hidden: 4096,
            draft_vocabulary: 32000,
            draft_bytes: 1 << 30,
            draft_cache_bytes: 0,
        };
        let request = PlanRequest::new("llama", llama(), machine);
        let request = PlanRequest { tensor_parallel: 2, speculation: Some(speculation), allreduce, ..request };
        build(&request).unwrap().prediction.unwrap()
    };
    let auto = crate::plan::AllReduceChoice::Auto;
    let measured = predicted(&database, auto);
    // 8 KiB between 4 KiB at 2.24 us and 16 KiB at 2.42; 64 KiB at 2.67.
    let line = measured.assumptions.iter().find(|line| line.contains("meetings")).unwrap();
    assert!(line.contains("2.3 us each in a decode, 2.7 in a verify, measured"), "{line}");
    // NCCL's times are not those of the ladder.
    let nccl = predicted(&database, crate::plan::AllReduceChoice::Nccl);
    assert!(nccl.assumptions.iter().any(|line| line.contains("assumed")), "{nccl:?}");
    assert!(measured.decode_seconds < nccl.decode_seconds);
}

/// Fusing that was measured and did not pay is off, whatever the record says of it; one that was not measured is left
/// to the record.
#[test]
fn fusing_that_does_not_pay_is_off() {
    let mut measurement = recorded();
    let fused = measurement.groups[0].norms.iter_mut().filter(|norm| norm.fused);
    fused.for_each(|norm| norm.microseconds *= 10.0);
    let tuned = tune(Database::embedded(), &measurement).unwrap();
    assert!(tuned.lines.iter().any(|line| line.contains("in a kernel of their own")), "{:?}", tuned.lines);
    let (_folder, path) = overlay(&tuned.text);
    let plan = planned(&path, &MachineFacts::default(), true);
    assert_eq!((plan.sites[0].algorithm.as_deref(), plan.sites[0].fusion.as_str()), (Some("one_shot"), "none"));
}
