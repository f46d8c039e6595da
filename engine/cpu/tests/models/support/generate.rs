use std::sync::Arc;
use std::time::Duration;

use engine::collective::{CallCounters, CollectivePlan};
use engine::executor::{Capacity, Executor, RankFactory, RanksConfig, RanksExecutor, StartError};
use engine::model::ModelConfig;
use engine::types::{
    Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId, StepOutput, TokenLogprobs,
};
use engine::weights::WeightSource;
use engine_cpu::SHARED_MEMORY;

const PAGES_EACH: u32 = 8;

/// How [`generate`] cuts its work.
pub struct Settings {
    /// Rows of a prompt in one step.
    pub chunk: usize,
    /// Output tokens of each sequence.
    pub tokens: usize,
    pub prompt_logprobs: Option<u32>,
    /// Tokens to verify per step, in turn; below 2 a plain decode.
    pub widths: Vec<u32>,
}

impl Settings {
    pub fn greedy(chunk: usize, tokens: usize) -> Self {
        Self { chunk, tokens, prompt_logprobs: None, widths: vec![0] }
    }

    pub fn verifying(self, widths: &[u32]) -> Self {
        Self { widths: widths.to_vec(), ..self }
    }
}

/// What one sequence became.
#[derive(Debug, Default, PartialEq)]
pub struct Generated {
    pub tokens: Vec<u32>,
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Drafted tokens accepted by each verify.
    pub accepted: Vec<u32>,
}

pub fn start<F: RankFactory>(
    factory: F,
    model: &Arc<ModelConfig>,
    weights: &Arc<dyn WeightSource>,
    counters: &Arc<CallCounters>,
) -> Result<RanksExecutor, StartError> {
    RanksExecutor::start(factory, config(model, weights, counters), |_| {})
}

/// Room for four sequences of 128 tokens.
pub fn config(model: &Arc<ModelConfig>, weights: &Arc<dyn WeightSource>, counters: &Arc<CallCounters>) -> RanksConfig {
    let vocabulary = model.vocabulary as u32;
    let capacity = Capacity { pages: 4 * PAGES_EACH, page_size: 16, slots: 4, rows: 64, context: 128, vocabulary };
    RanksConfig {
        model: Arc::clone(model),
        weights: Arc::clone(weights),
        capacity,
        logit_rows: 4,
        plan: Arc::new(CollectivePlan::uniform(SHARED_MEMORY)),
        counters: Arc::clone(counters),
        step_deadline: Duration::from_secs(60),
        speculation: None,
    }
}

/// Runs the prompts together, one slot each: chunks of prompts beside decodes of those that are further, as a
/// scheduler would.
pub fn generate(executor: &mut impl Executor, prompts: &[Vec<u32>], settings: &Settings) -> Vec<Generated> {
    let mut results: Vec<Generated> = prompts.iter().map(|_| Generated::default()).collect();
    let mut done = vec![0; prompts.len()];
    for step in 0.. {
        let running = (0..prompts.len()).filter(|index| results[*index].tokens.len() < settings.tokens);
        let (prefill, decode): (Vec<usize>, Vec<usize>) =
            running.partition(|index| done[*index] < prompts[*index].len());
        let order = [prefill, decode].concat();
        if order.is_empty() {
            return results;
        }
        let width = settings.widths[step as usize % settings.widths.len()];
        let entry =
            |index: &usize| entry(*index, &prompts[*index], &results[*index].tokens, done[*index], (settings, width));
        let batch = Batch { step, entries: order.iter().map(entry).collect(), retired: Vec::new() };
        let lengths: Vec<usize> =
            batch.entries.iter().map(|entry| if entry.verify_tokens > 0 { 0 } else { entry.tokens.len() }).collect();
        executor.submit(batch).expect("submit");
        let StepOutput { entries, .. } = executor.collect().expect("collect");
        for ((index, rows), output) in order.iter().zip(lengths).zip(entries) {
            // A verify entry writes a row for each token that comes of it.
            done[*index] += if rows == 0 { output.tokens.len() } else { rows };
            if rows == 0 {
                results[*index].accepted.push(output.accepted);
            }
            results[*index].tokens.extend(output.tokens.iter().map(|token| token.id));
            results[*index].prompt_logprobs.extend(output.prompt_logprobs);
        }
    }
    unreachable!("steps do not end")
}

fn entry(index: usize, prompt: &[u32], output: &[u32], done: usize, (settings, width): (&Settings, u32)) -> BatchEntry {
    let prefill = done < prompt.len();
    let tokens = match output.last() {
        Some(token) => vec![*token],
        None => prompt[done..(done + settings.chunk).min(prompt.len())].to_vec(),
    };
    let last = done + tokens.len() >= prompt.len();
    let prompt_logits = prefill && settings.prompt_logprobs.is_some();
    let verifies = !prefill && width > 1;
    let end = done + if verifies { width as usize } else { tokens.len() };
    BatchEntry {
        slot: SlotId(index as u32),
        phase: match (prefill, verifies) {
            (true, _) => Phase::Prefill,
            (false, true) => Phase::Verify,
            (false, false) => Phase::Decode,
        },
        start: done as u32,
        pages: (0..end.div_ceil(16) as u32).map(|page| PageId(page * 4 + index as u32)).collect(),
        tokens,
        verify_tokens: if verifies { width } else { 0 },
        logits: if prompt_logits {
            LogitsRows::All
        } else if last {
            LogitsRows::Last
        } else {
            LogitsRows::None
        },
        sample: last,
        begin: (done == 0).then(|| sampling(prompt, settings)),
    }
}

fn sampling(prompt: &[u32], settings: &Settings) -> Sampling {
    let params =
        SamplingParams { temperature: 0.0, prompt_logprobs: settings.prompt_logprobs, ..SamplingParams::default() };
    let (params, prompt) = (Arc::new(params), Arc::from(prompt));
    Sampling { params, prompt, output: Vec::new(), choice: 0, end_tokens: Arc::from([]) }
}
