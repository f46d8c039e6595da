//! What the sampler remembers of one sequence.

use std::collections::HashMap;
use std::sync::Arc;

use super::choose::{self, Shape};
use super::logprobs::token_logprobs;
use super::philox::{Counter, random_bits};
use super::scratch::SamplerScratch;
use crate::types::{Sampling, SamplingParams, TokenOutput};

/// Temperatures below this are greedy: their reciprocal would leave the range of f32.
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// The model gave no usable logits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no finite logit at output position {position}: the row's maximum is infinite or every entry is NaN")]
pub struct SampleError {
    pub position: u32,
}

/// How often a token occurred.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrence {
    prompt: bool,
    output: u32,
}

/// Sampling state of one sequence: its parameters, the tokens it has seen, its place in the random stream.
#[derive(Debug)]
pub struct SamplerState {
    params: Arc<SamplingParams>,
    choice: u32,
    end_tokens: Arc<[u32]>,
    output: Vec<u32>,
    /// Empty when no penalty is on.
    occurrences: HashMap<u32, Occurrence>,
}

impl SamplerState {
    /// Takes over prompt and output so far; both count for the penalties as `SamplingParams` says.
    pub fn new(sampling: &Sampling) -> Self {
        let mut state = Self {
            params: sampling.params.clone(),
            choice: sampling.choice,
            end_tokens: sampling.end_tokens.clone(),
            output: Vec::with_capacity(sampling.output.len() + 1),
            occurrences: HashMap::new(),
        };
        if state.params.repetition_penalty != 1.0 {
            let prompt = Occurrence { prompt: true, output: 0 };
            state.occurrences = sampling.prompt.iter().map(|&token| (token, prompt)).collect();
        }
        sampling.output.iter().for_each(|&token| state.append(token));
        state
    }

    /// Number of output tokens so far: the position of the token that `sample` chooses.
    pub fn position(&self) -> u32 {
        self.output.len() as u32
    }

    /// Adds a chosen token to the output.
    pub fn append(&mut self, token: u32) {
        self.output.push(token);
        if self.has_penalty() {
            self.occurrences.entry(token).or_default().output += 1;
        }
    }

    /// Takes tokens off the end again, back to `length` output tokens: for paths of a speculative tree.
    pub fn truncate(&mut self, length: u32) {
        while self.output.len() > length as usize {
            let token = self.output.pop();
            if let Some(occurrence) = token.and_then(|token| self.occurrences.get_mut(&token)) {
                occurrence.output -= 1;
            }
        }
    }

    /// Whether the next token is the one of the largest raw logit and nothing more is asked of the row: then it may be
    /// chosen where the logits are.
    pub fn takes_largest(&self) -> bool {
        let params = &*self.params;
        let greedy = params.temperature < GREEDY_TEMPERATURE || params.top_k == 1;
        let raw = params.logit_bias.is_empty() && !self.has_penalty() && self.position() >= params.min_tokens;
        greedy && raw && params.logprobs.is_none()
    }

    /// Chooses the next token from its row of raw logits (f32, one per token of the vocabulary). The row is changed
    /// on the way and is as before on return. Does not append.
    pub fn sample(&self, logits: &mut [f32], scratch: &mut SamplerScratch) -> Result<TokenOutput, SampleError> {
        self.adjust(logits, scratch);
        let chosen = self.choose(logits, scratch);
        scratch.restore(logits);
        let id = chosen.ok_or(SampleError { position: self.position() })?;
        let logprobs = self.params.logprobs.and_then(|top| token_logprobs(logits, id, top));
        Ok(TokenOutput { id, logprobs })
    }

    /// Bias, then repetition, frequency and presence penalty, then the mask of end tokens, which nothing can outweigh.
    fn adjust(&self, logits: &mut [f32], scratch: &mut SamplerScratch) {
        let params = &*self.params;
        for &(token, bias) in &params.logit_bias {
            scratch.set(logits, token, |logit| logit + bias);
        }
        for (&token, occurrence) in &self.occurrences {
            scratch.set(logits, token, |logit| penalise(logit, *occurrence, params));
        }
        if self.position() < params.min_tokens {
            for &token in self.end_tokens.iter() {
                scratch.set(logits, token, |_| f32::NEG_INFINITY);
            }
        }
    }

    fn choose(&self, logits: &[f32], scratch: &mut SamplerScratch) -> Option<u32> {
        let params = &*self.params;
        // A single candidate needs no draw, and `top_k` 1 is how many clients ask for greedy.
        if params.temperature < GREEDY_TEMPERATURE || params.top_k == 1 {
            return choose::largest(logits);
        }
        let shape =
            Shape { temperature: params.temperature, top_k: params.top_k, top_p: params.top_p, min_p: params.min_p };
        let counter = Counter { position: self.position(), choice: self.choice, node: 0, draw: 0 };
        choose::draw(logits, shape, random_bits(params.seed, counter), scratch)
    }

    fn has_penalty(&self) -> bool {
        let params = &*self.params;
        params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0
    }
}

fn penalise(logit: f32, occurrence: Occurrence, params: &SamplingParams) -> f32 {
    let mut logit = logit;
    if occurrence.prompt || occurrence.output > 0 {
        logit = if logit > 0.0 { logit / params.repetition_penalty } else { logit * params.repetition_penalty };
    }
    if occurrence.output > 0 {
        logit -= params.frequency_penalty * occurrence.output as f32;
        logit -= params.presence_penalty;
    }
    logit
}
