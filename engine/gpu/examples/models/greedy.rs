//! Greedy tokens through the executor, as served: prompts in chunks, decodes together, recorded passes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::collective::{CallCounters, CollectivePlan};
use engine::executor::{Capacity, Executor, RankFactory, RanksConfig, RanksExecutor};
use engine::load::{OpenOptions, open_model};
use engine::model::ModelConfig;
use engine::tokenizer::Framing;
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId};
use engine::weights::WeightSource;
use engine_cpu::kernels::{CacheElement, Precision};
use engine_cpu::{CpuOptions, CpuRanks, map_file};

use crate::{Failure, gpu};

const SLOTS: u32 = 32;
const PAGES_EACH: u32 = 32;
const CHUNK: usize = 96;
/// Rows of a step: a chunk of every prompt.
pub const ROWS: u32 = SLOTS * CHUNK as u32;
const TOKENS: usize = 64;
/// Gap of two log-probabilities below which their order is a matter of rounding: what is asked of the CPU beside llama.cpp.
pub const NEAR: f32 = 0.4;

/// A token and the gap between the best two log-probabilities where it was chosen.
pub type Choice = (u32, f32);

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
    let run = |logprobs| Run::new(config, weights, prompts, logprobs);
    let expected = generate(run(true), cpu.with_cache(CacheElement::F32))?;
    let actual = generate(run(false), gpu(config)?)?;
    let with_logits = generate(run(true), gpu(config)?)?;
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
    let encode = |text: &&str| tokenizer.encode(text, Framing::Added).map_err(|error| error.to_string());
    let prompts = texts.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
    compare(&Arc::new(model.config), &model.source, &prompts, &path.display().to_string())
}

/// What is generated.
pub struct Run<'a> {
    pub config: &'a Arc<ModelConfig>,
    pub weights: &'a Arc<dyn WeightSource>,
    pub prompts: &'a [Vec<u32>],
    /// The host chooses, and keeps the lead of each choice.
    pub logprobs: bool,
    pub plan: Arc<CollectivePlan>,
    pub counters: Arc<CallCounters>,
}

impl<'a> Run<'a> {
    /// On a single rank.
    pub fn new(
        config: &'a Arc<ModelConfig>,
        weights: &'a Arc<dyn WeightSource>,
        prompts: &'a [Vec<u32>],
        logprobs: bool,
    ) -> Self {
        let (plan, counters) = (Arc::new(CollectivePlan::uniform("none")), Arc::default());
        Self { config, weights, prompts, logprobs, plan, counters }
    }
}

pub fn generate<F: RankFactory>(run: Run<'_>, factory: F) -> Result<Vec<Vec<Choice>>, Failure> {
    let (prompts, logprobs) = (run.prompts, run.logprobs);
    let mut executor = start(run, factory)?;
    let (outputs, steps) = drive(&mut executor, prompts, logprobs, 0)?;
    println!("  {} decode steps in {:.3} s", steps.len(), steps.iter().sum::<Duration>().as_secs_f64());
    Ok(outputs)
}

/// The executor that a run is made on.
pub fn start<F: RankFactory>(run: Run<'_>, factory: F) -> Result<RanksExecutor, Failure> {
    let Run { config, weights, plan, counters, .. } = run;
    let capacity = Capacity {
        pages: SLOTS * PAGES_EACH,
        page_size: 16,
        slots: SLOTS,
        rows: ROWS,
        context: (PAGES_EACH * 16).min(config.context as u32),
        vocabulary: config.vocabulary as u32,
    };
    let config = RanksConfig {
        model: Arc::clone(config),
        weights: Arc::clone(weights),
        capacity,
        logit_rows: SLOTS as usize,
        plan,
        counters,
        step_deadline: Duration::from_secs(60),
        speculation: None,
    };
    RanksExecutor::start(factory, config, |_| {}).map_err(|error| error.to_string())
}

/// Continues prompts in all slots, the first step named `step`. Gives the outputs, and the time of each step that only
/// decoded.
pub fn drive(
    executor: &mut RanksExecutor,
    prompts: &[Vec<u32>],
    logprobs: bool,
    mut step: u64,
) -> Result<(Vec<Vec<Choice>>, Vec<Duration>), Failure> {
    let prompts = &prompts[..prompts.len().min(SLOTS as usize)];
    let (done, outputs) = (vec![0; prompts.len()], vec![Vec::new(); prompts.len()]);
    let mut run = Progress { prompts, done, outputs, logprobs, retired: (0..SLOTS).map(SlotId).collect() };
    let mut times = Vec::new();
    loop {
        let (start, decodes) = (Instant::now(), run.decodes());
        if !run.step(executor, step)? {
            return Ok((run.outputs, times));
        }
        if decodes {
            times.push(start.elapsed());
        }
        step += 1;
    }
}

struct Progress<'a> {
    prompts: &'a [Vec<u32>],
    /// Positions in the cache.
    done: Vec<usize>,
    outputs: Vec<Vec<Choice>>,
    logprobs: bool,
    /// Slots of an earlier run.
    retired: Vec<SlotId>,
}

impl Progress<'_> {
    /// Whether every prompt is in the cache.
    fn decodes(&self) -> bool {
        self.prompts.iter().zip(&self.done).all(|(prompt, done)| *done >= prompt.len())
    }

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
        let retired = std::mem::take(&mut self.retired);
        executor.submit(Batch { step, entries, retired }).map_err(|error| error.to_string())?;
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
