//! The executor on one rank: greedy tokens and prompt log-probabilities.

use std::sync::Arc;

use engine_cpu::kernels::CacheElement;

use crate::support::{GOLDEN, Golden, Settings, assert_close, generate, ranks, start};

#[test]
fn greedy_tokens_in_one_go_and_in_chunks() {
    for golden in GOLDEN.map(Golden::open) {
        let mut executor = start(ranks(1), &golden.config, &golden.weights, &Arc::default()).unwrap();
        for (chunk, prompts) in [(64, 1), (4, 1), (9, 2)] {
            let results = generate(&mut executor, &golden.prompts[..prompts], &Settings::greedy(chunk, 16));
            for (result, expected) in results.iter().zip(&golden.greedy) {
                assert_eq!(result.tokens, expected[..16], "{}, {prompts} prompts in chunks of {chunk}", golden.name);
            }
        }
    }
}

/// With f16 keys and values the smallest gap on these paths is far above the rounding.
#[test]
fn greedy_tokens_with_keys_and_values_in_half_precision() {
    for golden in ["eagle3-tiny", "qwen2-tiny", "qwen3-tiny"].map(Golden::open) {
        let ranks = ranks(2).with_cache(CacheElement::F16);
        let mut executor = start(ranks, &golden.config, &golden.weights, &Arc::default()).unwrap();
        let results = generate(&mut executor, &golden.prompts[..2], &Settings::greedy(9, 16));
        for (result, expected) in results.iter().zip(&golden.greedy) {
            assert_eq!(result.tokens, expected[..16], "{}", golden.name);
        }
    }
}

#[test]
fn prompt_logprobs_are_the_log_softmax_of_the_logits() {
    let golden = Golden::open("qwen3-tiny");
    let mut executor = start(ranks(1), &golden.config, &golden.weights, &Arc::default()).unwrap();
    let settings = Settings { prompt_logprobs: Some(2), ..Settings::greedy(6, 1) };
    let results = generate(&mut executor, &golden.prompts[..1], &settings);
    let (tokens, logits) = golden.teacher_forced(0);
    let prompt = golden.prompts[0].len();
    assert_eq!(results[0].prompt_logprobs.len(), prompt - 1, "the first token has none");
    let rows = logits.chunks(golden.config.vocabulary).take(prompt - 1);
    for (position, (row, reported)) in rows.zip(&results[0].prompt_logprobs).enumerate() {
        let normaliser = row.iter().map(|logit| f64::from(*logit).exp()).sum::<f64>().ln() as f32;
        let own = row[tokens[position + 1] as usize];
        let mut sorted = row.to_vec();
        sorted.sort_by(|left, right| right.total_cmp(left));
        let top: Vec<f32> = reported.top.iter().map(|(_, logprob)| *logprob).collect();
        assert_close(&[reported.logprob], &[own - normaliser], "log-probability of the next token");
        assert_close(&top, &[sorted[0] - normaliser, sorted[1] - normaliser], "the best two");
        assert_eq!(reported.rank as usize, 1 + row.iter().filter(|logit| **logit > own).count(), "rank");
    }
}
