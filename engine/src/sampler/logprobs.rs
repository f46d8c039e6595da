//! Log-probabilities of the model itself: natural logarithm, temperature 1, before any penalty or filter.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::row::{maximum, visit_where};
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
    let better = count_where(logits, |logit| logit > own);
    let equal = count_where(&logits[..token as usize], |logit| logit == own);
    Some(TokenLogprobs {
        logprob: log(own),
        rank: better + equal + 1,
        top: best(logits, top as usize).into_iter().map(|entry| (entry.id, log(entry.logit))).collect(),
    })
}

fn count_where(logits: &[f32], wanted: impl Fn(f32) -> bool) -> u32 {
    logits.iter().fold(0, |count: u32, &logit| count.wrapping_add(u32::from(wanted(logit))))
}

fn log_sum_exp(logits: &[f32]) -> Option<f64> {
    let largest = maximum(logits)?;
    let exp = |logit: f32| f64::from(weight::exp2((logit - largest) * std::f32::consts::LOG2_E));
    let mut lanes = [0f64; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane += exp(logit);
        }
    }
    for (lane, &logit) in lanes.iter_mut().zip(rest) {
        *lane += exp(logit);
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
    if count == 0 {
        return Vec::new();
    }
    let mut heap = BinaryHeap::with_capacity(count.min(logits.len()) + 1);
    // Once the heap is full, a later id must be better than the worst in it, not equal.
    let worst = Cell::new(None);
    let wanted = |logit: f32| worst.get().map_or(!logit.is_nan(), |worst| logit > worst);
    visit_where(logits, wanted, |id, logit| {
        heap.push(Candidate { logit, id });
        if heap.len() > count {
            heap.pop();
        }
        if heap.len() == count {
            worst.set(heap.peek().map(|worst| worst.logit));
        }
    });
    heap.into_sorted_vec()
}
