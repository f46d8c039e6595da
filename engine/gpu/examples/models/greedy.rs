//! Greedy tokens through the executor, as served: prompts in chunks, decodes together, recorded passes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::collective::{CallCounters, CollectivePlan};
use engine::executor::{Capacity, Executor, RankFactory, RanksConfig, RanksExecutor};
use engine::load::{OpenOptions, open_model};
use engine::model::ModelConfig;
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId};
use engine::weights::WeightSource;
use engine_cpu::kernels::{CacheElement, Precision};
use engine_cpu::{CpuOptions, CpuRanks, map_file};

use crate::{Failure, gpu};

const SLOTS: u32 = 8;
const PAGES_EACH: u32 = 32;
const CHUNK: usize = 96;
const TOKENS: usize = 64;
/// Gap of two log-probabilities below which their order is a matter of rounding: what is asked of the CPU beside llama.cpp.
pub const NEAR: f32 = 0.4;

/// A token and the gap between the best two log-probabilities where it was chosen.
type Choice = (u32, f32);

/// Both backends continue the same prompts. A sequence may part only where the CPU's best two are near.
pub fn compare(
    config: &Arc<ModelConfig>,
    weights: &Arc<dyn WeightSource>,
    prompts: &[Vec<u32>],
    name: &str,
) -> Result<(), Failure> {
    let cpu = CpuRanks::new(CpuOptions {
        world_size: 1,
        threads: None,
        precision: Precision::Exact,
        deadline: Duration::from_secs(60),
    });
    let expected = generate(cpu.with_cache(CacheElement::F32), config, weights, prompts, true)?;
    let actual = generate(gpu(config)?, config, weights, prompts, false)?;
    let with_logits = generate(gpu(config)?, config, weights, prompts, true)?;
    if actual.iter().zip(&with_logits).any(|(left, right)| ids(left) != ids(right)) {
        return Err(format!("{name}: the device's own choice differs from the host's choice of its logits"));
    }
    let (mut equal, mut near) = (0, 0);
    for (index, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
        match actual.iter().zip(expected).position(|(actual, expected)| actual.0 != expected.0) {
            None => equal += 1,
            Some(at) if expected[at].1 < NEAR => near += 1,
            Some(at) => {
                let (wanted, gap) = expected[at];
                return Err(format!(
                    "{name}: prompt {index} parts at token {at}: {} for {wanted}, whose lead is {gap}",
                    actual[at].0
                ));
            }
        }
    }
    println!("{name}: of {} prompts {equal} continue equally, {near} part at a near tie", prompts.len());
    Ok(())
}

fn ids(choices: &[Choice]) -> Vec<u32> {
    choices.iter().map(|choice| choice.0).collect()
}

/// A model's own file, with prompts of plain text.
pub fn compare_file(path: &Path) -> Result<(), Failure> {
    let options = OpenOptions { open: map_file, ..OpenOptions::default() };
    let model = open_model(path, &options).map_err(|error| error.to_string())?;
    let tokenizer = model.tokenizer.ok_or("the model has no tokenizer")?;
    let texts = [
        "The capital of France is",
        "Water boils at a temperature of",
        "def fibonacci(n):",
        "Once upon a time, there was",
        "The three primary colours are",
        "To make bread you need flour,",
        "In 1969 the first humans",
        "A prime number is a number",
    ];
    let encode = |text: &&str| tokenizer.encode(text, true).map_err(|error| error.to_string());
    let prompts = texts.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
    compare(&Arc::new(model.config), &model.source, &prompts, &path.display().to_string())
}

fn generate<F: RankFactory>(
    factory: F,
    config: &Arc<ModelConfig>,
    weights: &Arc<dyn WeightSource>,
    prompts: &[Vec<u32>],
    logprobs: bool,
) -> Result<Vec<Vec<Choice>>, Failure> {
    let capacity = Capacity {
        pages: SLOTS * PAGES_EACH,
        page_size: 16,
        slots: SLOTS,
        rows: 512,
        context: (PAGES_EACH * 16).min(config.context as u32),
        vocabulary: config.vocabulary as u32,
    };
    let config = RanksConfig {
        model: Arc::clone(config),
        weights: Arc::clone(weights),
        capacity,
        logit_rows: 16,
        plan: Arc::new(CollectivePlan::uniform("none")),
        counters: Arc::new(CallCounters::default()),
        step_deadline: Duration::from_secs(60),
        speculation: None,
    };
    let mut executor = RanksExecutor::start(factory, config, |_| {}).map_err(|error| error.to_string())?;
    let prompts = &prompts[..prompts.len().min(SLOTS as usize)];
    let mut run = Run { prompts, done: vec![0; prompts.len()], outputs: vec![Vec::new(); prompts.len()], logprobs };
    let (start, mut steps) = (Instant::now(), 0);
    while run.step(&mut executor, steps)? {
        steps += 1;
    }
    println!("  {steps} steps in {:.3} s", start.elapsed().as_secs_f64());
    Ok(run.outputs)
}

struct Run<'a> {
    prompts: &'a [Vec<u32>],
    /// Positions in the cache.
    done: Vec<usize>,
    outputs: Vec<Vec<Choice>>,
    logprobs: bool,
}

impl Run<'_> {
    /// One step of every sequence that is not at its end; false if none is left.
    fn step(&mut self, executor: &mut impl Executor, step: u64) -> Result<bool, Failure> {
        let running = (0..self.prompts.len()).filter(|index| self.outputs[*index].len() < TOKENS);
        let (prefill, decode): (Vec<usize>, Vec<usize>) =
            running.partition(|index| self.done[*index] < self.prompts[*index].len());
        let order = [prefill, decode].concat();
        if order.is_empty() {
            return Ok(false);
        }
        let entries: Vec<BatchEntry> = order.iter().map(|index| self.entry(*index)).collect();
        let rows: Vec<usize> = entries.iter().map(|entry| entry.tokens.len()).collect();
        executor.submit(Batch { step, entries, retired: Vec::new() }).map_err(|error| error.to_string())?;
        let output = executor.collect().map_err(|error| error.to_string())?;
        for ((index, rows), entry) in order.into_iter().zip(rows).zip(output.entries) {
            self.done[index] += rows;
            self.outputs[index].extend(entry.tokens.iter().map(|token| {
                let top = token.logprobs.as_ref().map(|logprobs| &logprobs.top);
                (token.id, top.map_or(f32::NAN, |top| top[0].1 - top[1].1))
            }));
        }
        Ok(true)
    }

    fn entry(&self, index: usize) -> BatchEntry {
        let (prompt, done) = (&self.prompts[index], self.done[index]);
        let tokens = match self.outputs[index].last() {
            Some((token, _)) => vec![*token],
            None => prompt[done..(done + CHUNK).min(prompt.len())].to_vec(),
        };
        let last = done + tokens.len() >= prompt.len();
        let pages = (done + tokens.len()).div_ceil(16) as u32;
        let params =
            SamplingParams { temperature: 0.0, logprobs: self.logprobs.then_some(2), ..SamplingParams::default() };
        BatchEntry {
            slot: SlotId(index as u32),
            phase: if done < prompt.len() { Phase::Prefill } else { Phase::Decode },
            start: done as u32,
            pages: (0..pages).map(|page| PageId(page * SLOTS + index as u32)).collect(),
            tokens,
            verify_tokens: 0,
            logits: if last { LogitsRows::Last } else { LogitsRows::None },
            sample: last,
            begin: (done == 0).then(|| Sampling {
                params: Arc::new(params),
                prompt: Arc::from(prompt.as_slice()),
                output: Vec::new(),
                choice: 0,
                end_tokens: Arc::from([]),
            }),
        }
    }
}
