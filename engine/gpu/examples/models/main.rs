//! Compares whole models on a GPU with the CPU backend: logits of teacher-forced sequences, then greedy tokens through
//! the executor with recorded passes.
//!
//! `models GOLDEN_FOLDER` runs the golden models; `models FILE.gguf` compares greedy tokens of one model;
//! `models time CONFIG.json SEQUENCES CONTEXT [EACH...]` times a decode step, or passes over EACH rows a sequence, with
//! random weights. Needs a GPU, so it is a program and not a test. Exit code 1: a difference beyond what bf16 explains.

mod eagle;
mod golden;
mod greedy;
mod rig;
mod timing;

use std::path::Path;
use std::process::ExitCode;

use engine::model::{Attention, ModelConfig};
use engine_gpu::{CudaOptions, CudaRanks, KernelStore};

/// What went wrong, in one line.
pub type Failure = String;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["time", config, sequences, context, each @ ..] => {
            match (sequences.parse(), context.parse(), each.iter().map(|each| each.parse()).collect()) {
                (Ok(sequences), Ok(context), Ok(each)) => {
                    let each: Vec<usize> = each;
                    timing::run(Path::new(config), sequences, context, if each.is_empty() { &[1] } else { &each })
                }
                _ => Err("SEQUENCES, CONTEXT and EACH are numbers".to_owned()),
            }
        }
        [path] => run(Path::new(path)),
        _ => {
            eprintln!(
                "usage: models GOLDEN_FOLDER | FILE.gguf | MODEL_FOLDER | time CONFIG.json SEQUENCES CONTEXT [EACH...]"
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
    use engine::plan::{Database, device_record, kernel_target};
    let database = Database::embedded();
    let survey = engine_gpu::doctor::survey(&[]);
    let device = survey.devices.first().ok_or_else(|| survey.problem.clone().unwrap_or_default())?;
    let record = device_record(&database, &device.name, &device.compute_capability);
    let record = record.ok_or_else(|| format!("no record for {}", device.name))?;
    let target = kernel_target(&database, &record).map_err(|error| error.to_string())?;
    let Attention::Grouped { head_dimension, .. } = config.attention else { return Err("latent attention".to_owned()) };
    let head_dimensions = vec![head_dimension as u32];
    let store = KernelStore { cache: Some(std::env::temp_dir().join("archway-kernels")), pack: None };
    Ok(CudaRanks::new(CudaOptions { ordinals: vec![device.ordinal], target, head_dimensions, store }))
}
