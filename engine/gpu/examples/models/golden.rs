//! The golden models: the CPU backend gives transformers' logits to 1e-4, and here stands for them.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use engine::executor::RankFactory;
use engine::load::parse_config;
use engine::model::ModelConfig;
use engine::weights::{SafetensorsWeights, TensorInfo, TensorView, WeightError, WeightSource, WeightType, read_file};
use engine_cpu::CpuBackend;
use engine_cpu::kernels::{CacheElement, Compute, Pool, Precision};
use half::bf16;

use crate::rig::Rig;
use crate::{Failure, gpu, greedy};

/// Largest relative difference of a sequence's logits, ‖gpu - cpu‖ / ‖cpu‖, with weights rounded to bf16 on both
/// sides: what bf16 activations do over eight layers.
const TOLERANCE: f64 = 0.02;

pub fn compare(folder: &Path, name: &str) -> Result<(), Failure> {
    let text = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let config = folder.join("config.json");
    let config = parse_config(name, &text(&config)?).map_err(|error| error.to_string())?;
    let weights = SafetensorsWeights::open_folder(folder, read_file).map_err(|error| error.to_string())?;
    let weights: Arc<dyn WeightSource> = Arc::new(Rounded(weights));
    let vectors = if folder.ends_with("target") { folder.join("../vectors.json") } else { folder.join("vectors.json") };
    let vectors: serde_json::Value = serde_json::from_str(&text(&vectors)?).map_err(|error| error.to_string())?;
    let prompts: Vec<Vec<u32>> =
        serde_json::from_value(vectors["prompts"].clone()).map_err(|error| format!("{name}: prompts: {error}"))?;
    logits(&config, &weights, &prompts, name)?;
    greedy::compare(&Arc::new(config), &weights, &prompts, name)
}

/// Whole sequences, chunks across pages, and two sequences in one batch.
fn logits(
    config: &ModelConfig,
    weights: &Arc<dyn WeightSource>,
    prompts: &[Vec<u32>],
    name: &str,
) -> Result<(), Failure> {
    let pool = Pool::new(4).map_err(|error| error.to_string())?;
    let cpu = CpuBackend::new(Compute::new(pool, Precision::Exact), CacheElement::F32);
    let (mut cpu, mut device) = (
        Rig::new(cpu, config, weights)?,
        Rig::new(gpu(config)?.backend(0).map_err(|error| error.to_string())?, config, weights)?,
    );
    let prompts: Vec<&[u32]> = prompts.iter().take(3).map(|prompt| &prompt[..prompt.len().min(96)]).collect();
    for (index, prompt) in prompts.iter().enumerate() {
        let step = [(index, 0, *prompt)];
        check(&format!("{name}, prompt {index}"), &device.step(&step)?, &cpu.step(&step)?)?;
    }
    let mut start = 0;
    for size in [1, 5, 17, 3, 1].into_iter().cycle() {
        let part = |index: usize| {
            let prompt = prompts[index];
            (index, start, &prompt[start.min(prompt.len())..(start + size).min(prompt.len())])
        };
        let step: Vec<_> = [0, 1].map(part).into_iter().filter(|(_, _, tokens)| !tokens.is_empty()).collect();
        if step.is_empty() {
            break;
        }
        check(&format!("{name}, two sequences, {size} rows from {start}"), &device.step(&step)?, &cpu.step(&step)?)?;
        start += size;
    }
    Ok(())
}

fn check(what: &str, actual: &[f32], expected: &[f32]) -> Result<(), Failure> {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = square(&mut actual.iter().zip(expected).map(|(actual, expected)| f64::from(actual - expected)));
    let relative = difference / square(&mut expected.iter().map(|value| f64::from(*value)));
    println!("{what}: relative difference {relative:.5}");
    // A NaN is not an agreement.
    if relative <= TOLERANCE { Ok(()) } else { Err(format!("{what}: relative difference {relative}")) }
}

/// f32 weights with the values that bf16 can hold, so that both sides compute with the same ones.
pub struct Rounded<W>(pub W);

impl<W: WeightSource> WeightSource for Rounded<W> {
    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    fn info(&self, name: &str) -> Result<TensorInfo, WeightError> {
        self.0.info(name)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, WeightError> {
        let tensor = self.0.tensor(name, shape)?;
        if tensor.kind != WeightType::F32 || shape.len() < 2 {
            return Ok(tensor);
        }
        let values = tensor.bytes.as_chunks().0.iter().map(|bytes| bf16::from_f32(f32::from_le_bytes(*bytes)).to_f32());
        let bytes = Cow::Owned(values.flat_map(f32::to_le_bytes).collect());
        Ok(TensorView { bytes, ..tensor })
    }
}
