//! Log-probabilities of the model itself: natural logarithm, temperature 1, before any penalty or filter.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::choose::maximum;
use super::weight;
use crate::types::TokenLogprobs;

const LANES: usize = 8;

/// Log-probability and rank of `token` in a row of raw logits, and the `top` best tokens.
///
/// The sum of exponentials is kept in f64 in eight lanes (lane `j` takes ids `j` modulo 8), added in lane order.
/// A row without a finite maximum, or a token outside of it, has no probabilities: None.
pub fn token_logprobs(logits: &[f32], token: u32, top: u32) -> Option<TokenLogprobs> {
    let own = *logits.get(token as usize)?;
    let normaliser = log_sum_exp(logits)?;
    let log = |logit: f32| (f64::from(logit) - normaliser) as f32;
    let better = logits.iter().zip(0u32..).filter(|&(&logit, id)| logit > own || (logit == own && id < token));
    Some(TokenLogprobs {
        logprob: log(own),
        rank: better.count() as u32 + 1,
        top: best(logits, top as usize).into_iter().map(|entry| (entry.id, log(entry.logit))).collect(),
    })
}

fn log_sum_exp(logits: &[f32]) -> Option<f64> {
    let largest = maximum(logits)?;
    let mut lanes = [0f64; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(weight::exp(logit - largest));
        }
    }
    for (lane, &logit) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(weight::exp(logit - largest));
    }
    Some(f64::from(largest) + lanes.iter().sum::<f64>().ln())
}

/// A token (never NaN) in the order "larger logit first, then smaller id"; the greatest is the worst, so a heap pops the worst.
#[derive(Clone, Copy, PartialEq)]
struct Candidate {
    logit: f32,
    id: u32,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other.logit.partial_cmp(&self.logit).unwrap_or(Ordering::Equal).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn best(logits: &[f32], count: usize) -> Vec<Candidate> {
    let mut heap = BinaryHeap::with_capacity(count.min(logits.len()) + 1);
    for (&logit, id) in logits.iter().zip(0u32..) {
        let candidate = Candidate { logit, id };
        if logit.is_nan() || (heap.len() == count && heap.peek().is_none_or(|worst| candidate >= *worst)) {
            continue;
        }
        heap.push(candidate);
        if heap.len() > count {
            heap.pop();
        }
    }
    heap.into_sorted_vec()
}
