//! What the sampler remembers of one sequence.

use std::collections::HashMap;
use std::sync::Arc;

use super::change::{LogitChange, merge};
use super::draw::Draw;
use super::logprobs::token_logprobs;
use super::philox::Counter;
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
        let mut changes = std::mem::take(&mut scratch.changes);
        changes.clear();
        let draw = self.draw(0, &mut changes);
        let chosen = draw.choose(logits, &changes, scratch);
        scratch.changes = changes;
        let id = chosen.ok_or(SampleError { position: self.position() })?;
        let logprobs = self.params.logprobs.and_then(|top| token_logprobs(logits, id, top));
        Ok(TokenOutput { id, logprobs })
    }

    /// Whether the next `count` tokens can be drawn from their rows alone, by [`SamplerState::draw`]: nothing more is asked
    /// of a row, and no row's penalties depend on the tokens of the rows before it.
    pub fn draws(&self, count: u32) -> bool {
        self.params.logprobs.is_none() && (count <= 1 || !self.has_penalty())
    }

    /// Most changes that [`SamplerState::draw`] appends.
    pub fn most_changes(&self) -> usize {
        let masked = if self.position() < self.params.min_tokens { self.end_tokens.len() } else { 0 };
        self.params.logit_bias.len() + self.occurrences.len() + masked
    }

    /// How the token is chosen that comes `ahead` tokens after the next one. Appends what is done to its row before:
    /// bias, then repetition, frequency and presence penalty, then the mask of end tokens, which nothing can outweigh.
    pub fn draw(&self, ahead: u32, changes: &mut Vec<LogitChange>) -> Draw {
        let (params, first, position) = (&self.params, changes.len(), self.position() + ahead);
        changes.extend(params.logit_bias.iter().map(|&(token, bias)| LogitChange {
            token,
            bias,
            ..Default::default()
        }));
        changes.extend(self.occurrences.iter().map(|(&token, occurrence)| {
            let occurred = occurrence.prompt || occurrence.output > 0;
            LogitChange { token, outputs: occurrence.output, occurred, ..Default::default() }
        }));
        if position < params.min_tokens {
            let masked = |&token| LogitChange { token, masked: true, ..Default::default() };
            changes.extend(self.end_tokens.iter().map(masked));
        }
        merge(changes, first);
        let counter = Counter { position, choice: self.choice, node: 0, draw: 0 };
        Draw { params: Arc::clone(params), counter, changes: first..changes.len() }
    }

    fn has_penalty(&self) -> bool {
        let params = &*self.params;
        params.repetition_penalty != 1.0 || params.presence_penalty != 0.0 || params.frequency_penalty != 0.0
    }
}
