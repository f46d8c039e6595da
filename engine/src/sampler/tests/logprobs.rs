//! Log-probabilities, ranks and best tokens.

use super::*;
use crate::sampler::token_logprobs;

fn definition(row: &[f32], token: usize, top: usize) -> (f64, u32, Vec<(u32, f64)>) {
    let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].partial_cmp(&row[a]).unwrap().then(a.cmp(&b)));
    let log = |id: usize| f64::from(row[id]) - total.ln();
    let rank = order.iter().position(|&id| id == token).unwrap() as u32 + 1;
    (log(token), rank, order.iter().take(top).map(|&id| (id as u32, log(id))).collect())
}

#[test]
fn values_ranks_and_best_tokens_follow_the_definition() {
    for (seed, vocabulary, top) in [(1, 1, 3), (2, 9, 0), (3, 64, 1), (4, 500, 20), (5, 500, 500), (6, 3001, 5)] {
        let row = logits(seed, vocabulary);
        for token in (0..vocabulary).step_by(7).filter(|&token| row[token as usize].is_finite()) {
            let (logprob, rank, best) = definition(&row, token as usize, top);
            let answer = token_logprobs(&row, token, top as u32).unwrap();
            assert!((f64::from(answer.logprob) - logprob).abs() < 2e-5);
            assert_eq!(answer.rank, rank);
            assert_eq!(answer.top.len(), best.len());
            for (have, want) in answer.top.iter().zip(&best) {
                assert_eq!(have.0, want.0);
                assert!(f64::from(have.1) == want.1 || (f64::from(have.1) - want.1).abs() < 2e-5);
            }
        }
    }
}

#[test]
fn a_chosen_token_reports_the_raw_row_not_the_penalised_one() {
    let row = logits(8, 200);
    let params = SamplingParams {
        temperature: 0.3,
        top_k: 5,
        repetition_penalty: 2.0,
        logit_bias: vec![(150, 50.0)],
        logprobs: Some(3),
        ..Default::default()
    };
    let output = state(params).sample(&mut row.clone(), &mut SamplerScratch::new()).unwrap();
    assert_eq!(output.id, 150);
    assert_eq!(output.logprobs, token_logprobs(&row, 150, 3));
}

#[test]
fn nothing_is_reported_for_what_has_no_probability() {
    assert_eq!(token_logprobs(&[1.0, 2.0], 2, 1), None);
    assert_eq!(token_logprobs(&[f32::NAN, f32::NAN], 0, 1), None);
    assert_eq!(token_logprobs(&[], 0, 1), None);
}
