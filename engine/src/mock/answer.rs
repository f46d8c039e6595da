//! The next token as a function of the tokens before it.

use crate::types::{FinishReason, Sampling, SamplingParams, TokenLogprobs, TokenOutput};

/// A hash of a sequence of tokens that can be continued.
#[derive(Clone, Copy, Debug)]
pub(super) struct History(u64);

impl History {
    pub fn new(sampling: &Sampling) -> Self {
        let params = &sampling.params;
        // Greedy outputs do not depend on the seed, nor on which of the `n` outputs it is.
        let start = if params.temperature == 0.0 { 0 } else { mix(params.seed, u64::from(sampling.choice) + 1) };
        Self(start)
    }

    pub fn push(&mut self, token: u32) {
        self.0 = mix(self.0, u64::from(token) + 1);
    }

    pub fn bits(self) -> u64 {
        mix(self.0, 0)
    }

    /// The token that follows, after `position` output tokens.
    pub fn next(self, sampling: &Sampling, position: usize, vocabulary: u32) -> TokenOutput {
        let masked = position < sampling.params.min_tokens as usize;
        let tries = (1..).map(|attempt| (mix(self.0, attempt << 32) % u64::from(vocabulary)) as u32);
        // A vocabulary of end tokens alone cannot be masked.
        let id = tries.take(1000).find(|token| !(masked && sampling.end_tokens.contains(token))).unwrap_or(0);
        TokenOutput { id, logprobs: sampling.params.logprobs.map(|top| logprobs(id, position, top)) }
    }
}

/// Made-up log-probabilities that name token and position, so that a mix-up shows.
pub(super) fn logprobs(token: u32, position: usize, top: u32) -> TokenLogprobs {
    TokenLogprobs {
        logprob: -(token as f32),
        rank: position as u32 + 1,
        top: (0..top).map(|id| (id, -(id as f32))).collect(),
    }
}

/// One round of SplitMix64 over state and value.
fn mix(state: u64, value: u64) -> u64 {
    let mut bits = state.wrapping_add(value.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A complete output.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub tokens: Vec<TokenOutput>,
    pub reason: FinishReason,
}

/// What the mock must answer, computed without pages, batches or a scheduler. `context` and `vocabulary` are those of
/// its capacity; stop strings are not its business.
pub fn answer(sampling: &Sampling, context: u32, vocabulary: u32) -> Answer {
    let SamplingParams { min_tokens, max_tokens, .. } = *sampling.params;
    let mut history = History::new(sampling);
    sampling.prompt.iter().for_each(|token| history.push(*token));
    let mut tokens: Vec<TokenOutput> = Vec::new();
    loop {
        let token = history.next(sampling, tokens.len(), vocabulary);
        let ended = sampling.end_tokens.contains(&token.id) && tokens.len() >= min_tokens as usize;
        history.push(token.id);
        tokens.push(token);
        if ended {
            return Answer { tokens, reason: FinishReason::Stop };
        }
        if tokens.len() >= max_tokens as usize || sampling.prompt.len() + tokens.len() >= context as usize {
            return Answer { tokens, reason: FinishReason::Length };
        }
    }
}
