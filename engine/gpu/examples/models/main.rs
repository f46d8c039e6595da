//! Compares whole models on a GPU with the CPU backend: logits of teacher-forced sequences, then greedy tokens through
//! the executor with recorded passes.
//!
//! `models GOLDEN_FOLDER` runs the golden models; `models FILE.gguf` compares greedy tokens of one model;
//! `models time CONFIG.json|FILE.gguf SEQUENCES[,SEQUENCES...] CONTEXT [EACH...]` times a decode step, or passes over EACH rows a sequence, with
//! random weights or the file's, and `models rank-time RANKS CONFIG.json SEQUENCES[,SEQUENCES...] CONTEXT [EACH...]` on several GPUs;
//! `models ranks RANKS GOLDEN_FOLDER` compares several GPUs with one; `models speed CONFIG.json RANKS` times both. Needs a GPU, so it is a program and not a test. Exit code 1: a difference beyond what bf16 explains.

mod eagle;
mod golden;
mod greedy;
mod rank_timing;
mod ranks;
mod repeated;
mod rig;
mod speed;
mod timing;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use engine::model::{Attention, ModelConfig};
use engine::plan::{
    Database, GpuFacts, Machine, Plan, PlanRequest, PlanVerdict, Topology, device_record, kernel_target,
};
use engine_gpu::collective::CollectiveOptions;
use engine_gpu::{CudaOptions, CudaRanks, KernelStore};

/// What went wrong, in one line.
pub type Failure = String;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["time", config, sizes @ ..] => {
            timing::Sizes::parse(sizes).and_then(|sizes| timing::run(Path::new(config), &sizes))
        }
        ["rank-time", ranks, config, sizes @ ..] => match (ranks.parse(), timing::Sizes::parse(sizes)) {
            (Ok(ranks), Ok(sizes)) => rank_timing::run(ranks, Path::new(config), &sizes),
            (Err(_), _) => Err("RANKS is a number".to_owned()),
            (_, Err(failure)) => Err(failure),
        },
        ["ranks", ranks, folder] => match ranks.parse() {
            Ok(ranks) => ranks::compare(ranks, Path::new(folder)),
            Err(_) => Err("RANKS is a number".to_owned()),
        },
        ["speed", config, ranks] => match ranks.parse() {
            Ok(ranks) => speed::run(Path::new(config), ranks),
            Err(_) => Err("RANKS is a number".to_owned()),
        },
        [path] => run(Path::new(path)),
        _ => {
            eprintln!(
                "usage: models GOLDEN_FOLDER | FILE.gguf | MODEL_FOLDER | time CONFIG.json|FILE.gguf SEQUENCES[,SEQUENCES...] CONTEXT [EACH...]\n       \
                 models rank-time RANKS CONFIG.json SEQUENCES[,SEQUENCES...] CONTEXT [EACH...] | ranks RANKS GOLDEN_FOLDER | speed CONFIG.json RANKS"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("FAILED: {failure}");
            ExitCode::from(1)
        }
    }
}

fn run(path: &Path) -> Result<(), Failure> {
    if path.join("qwen2-tiny").is_dir() {
        for name in ["eagle3-tiny/target", "qwen2-tiny", "qwen3-tiny"] {
            golden::compare(&path.join(name), name)?;
        }
        return eagle::compare(&path.join("eagle3-tiny"));
    }
    greedy::compare_file(path)
}

/// The first GPU, with the kernels of its record for a model's heads.
fn gpu(config: &ModelConfig) -> Result<CudaRanks, Failure> {
    Ok(devices(config, 1, |request| request)?.0)
}

/// The first GPUs, one for each rank, and the plan of the request after `change`.
fn devices(
    config: &ModelConfig,
    ranks: usize,
    change: impl FnOnce(PlanRequest) -> PlanRequest,
) -> Result<(CudaRanks, Plan), Failure> {
    let database = Database::embedded();
    let survey = engine_gpu::doctor::survey(&[]);
    let devices = survey.devices.get(..ranks).ok_or_else(|| survey.problem.clone().unwrap_or("too few GPUs".into()))?;
    let record = device_record(&database, &devices[0].name, &devices[0].compute_capability);
    let record = record.ok_or_else(|| format!("no record for {}", devices[0].name))?;
    let target = kernel_target(&database, &record).map_err(|error| error.to_string())?;
    let facts = GpuFacts { topology: Some(Topology::NvlinkMesh), multicast: Some(false), ..GpuFacts::default() };
    let machine = Machine::gpu(&database, &record, ranks, &facts).map_err(|error| error.to_string())?;
    let request = PlanRequest::new("model", config.clone(), machine);
    let request = change(PlanRequest { tensor_parallel: ranks, max_rows: greedy::ROWS as usize, ..request });
    let plan = engine::plan::build(&request).map_err(|error| error.to_string())?;
    if plan.verdict == PlanVerdict::Refused {
        return Err(format!("the plan is refused: {}", plan.refusals.join("; ")));
    }
    let Attention::Grouped { head_dimension, .. } = config.attention else { return Err("latent attention".to_owned()) };
    let collectives = (ranks > 1).then(|| CollectiveOptions {
        plan: Arc::new(plan.collectives()),
        half_window: plan.half_window(),
        hidden: config.hidden,
        vocabulary: config.vocabulary,
        patience: CollectiveOptions::PATIENCE,
    });
    let ranks = CudaRanks::new(CudaOptions {
        ordinals: devices.iter().map(|device| device.ordinal).collect(),
        target,
        head_dimensions: vec![head_dimension as u32],
        store: KernelStore { cache: Some(std::env::temp_dir().join("archway-kernels")), pack: None },
        collectives,
    });
    Ok((ranks, plan))
}
