//! Choosing tokens: the same answer for the same request, whatever the batch, the device or the rank.
//!
//! Order of operations on a row of raw logits:
//! 1. log-probabilities are those of the raw row;
//! 2. `logit_bias` is added; repetition, then frequency, then presence penalty; end tokens are masked before `min_tokens`;
//! 3. temperature 0 (or `top_k` 1): the largest logit, the smallest id on a tie;
//! 4. otherwise temperature, then `top_k`, then `top_p` of what is left, then `min_p` relative to the likeliest token,
//!    ties in the order of ids, and one draw by inverse distribution function in ascending id (`choose`).
//!
//! Arithmetic is f32 up to the exponential and integer after it (`weight`), so no order of summation matters.
//! Randomness is Philox4x32-10 keyed by the request's seed (`philox`).

mod change;
mod choose;
mod draw;
mod filter;
mod logprobs;
mod philox;
mod row;
mod scratch;
mod state;
mod weight;

#[cfg(test)]
mod tests;

pub use change::LogitChange;
pub use choose::largest;
pub use draw::Draw;
pub use logprobs::token_logprobs;
pub use philox::{Counter, philox4x32_10, random_bits};
pub use scratch::SamplerScratch;
pub use state::{GREEDY_TEMPERATURE, SampleError, SamplerState};
