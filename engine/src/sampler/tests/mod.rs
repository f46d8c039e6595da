//! Each parameter against its definition, written out the slow way in f64 over a fully sorted vocabulary.

mod filters;
mod logprobs;
mod penalties;
mod statistics;

use std::sync::Arc;

use super::{Counter, SamplerScratch, SamplerState, random_bits};
use crate::types::{Sampling, SamplingParams};

/// Logits with many ties, a few infinite ones, and a long tail; the same for the same seed.
fn logits(seed: u64, vocabulary: u32) -> Vec<f32> {
    let bits = |id: u32| random_bits(seed, Counter { position: id, choice: 7, node: 7, draw: 7 });
    (0..vocabulary)
        .map(|id| match bits(id) % 97 {
            0 => f32::NEG_INFINITY,
            1 => 0.0,
            2 => -0.0,
            kind if kind < 30 => (bits(id) >> 40) as f32 / 4e6 - 2.0,
            _ => ((bits(id) >> 58) as f32) / 8.0 - 6.0,
        })
        .collect()
}

fn sampling(params: SamplingParams, prompt: &[u32], output: &[u32]) -> Sampling {
    Sampling {
        params: Arc::new(params),
        prompt: prompt.into(),
        output: output.to_vec(),
        choice: 0,
        end_tokens: Arc::from([1u32, 3]),
    }
}

fn state(params: SamplingParams) -> SamplerState {
    SamplerState::new(&sampling(params, &[5, 6, 5], &[]))
}

fn choose(state: &SamplerState, logits: &[f32]) -> u32 {
    let mut row = logits.to_vec();
    let token = state.sample(&mut row, &mut SamplerScratch::new()).expect("logits are finite").id;
    let same = row.iter().zip(logits).all(|(now, before)| now.to_bits() == before.to_bits());
    assert!(same, "sampling must leave the row as it was");
    token
}

/// Definition: probabilities after temperature, `top_k`, `top_p` of the renormalised rest, and `min_p`.
fn distribution(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
    let mut weights: Vec<f64> = logits.iter().map(|&logit| weight(logit, largest, params.temperature)).collect();
    if params.top_k > 0 {
        order.iter().skip(params.top_k as usize).for_each(|&id| weights[id] = 0.0);
    }
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    for &id in &order {
        let before = sum;
        sum += weights[id] / total;
        if params.top_p < 1.0 && before >= f64::from(params.top_p) {
            weights[id] = 0.0;
        }
    }
    weights.iter_mut().filter(|weight| **weight < f64::from(params.min_p)).for_each(|weight| *weight = 0.0);
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn weight(logit: f32, largest: f32, temperature: f32) -> f64 {
    ((f64::from(logit) - f64::from(largest)) / f64::from(temperature)).exp()
}

/// Draws at many positions and asks that each token is the one at that point of the distribution function.
fn assert_draws_follow(logits: &[f32], params: SamplingParams, draws: u32) {
    let expected = distribution(logits, &params);
    let mut state = state(params.clone());
    for position in 0..draws {
        let counter = Counter { position, choice: 0, node: 0, draw: 0 };
        let point = random_bits(params.seed, counter) as f64 / 2f64.powi(64);
        let token = choose(&state, logits) as usize;
        let below: f64 = expected[..token].iter().sum();
        assert!(expected[token] > 0.0, "token {token} was filtered out: {params:?}");
        assert!(below <= point + 2e-6, "token {token} starts at {below}, the point is {point}: {params:?}");
        assert!(below + expected[token] >= point - 2e-6, "token {token} ends before {point}: {params:?}");
        state.append(7);
    }
}
