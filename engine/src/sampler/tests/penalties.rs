//! Penalties, bias, `min_tokens`: tested through greedy choice and through the adjusted row itself.

use super::*;

const PROMPT: [u32; 4] = [5, 6, 5, 11];
const OUTPUT: [u32; 5] = [6, 9, 9, 9, 20];

/// Definition: what `params` makes of a row after `PROMPT` and `OUTPUT`.
fn adjusted(row: &[f32], params: &SamplingParams) -> Vec<f32> {
    let mut row = row.to_vec();
    for &(token, bias) in &params.logit_bias {
        row[token as usize] += bias;
    }
    for (id, logit) in row.iter_mut().enumerate() {
        let in_output = OUTPUT.iter().filter(|&&token| token as usize == id).count();
        let in_prompt = PROMPT.contains(&(id as u32));
        if in_output > 0 || in_prompt {
            *logit = if *logit > 0.0 { *logit / params.repetition_penalty } else { *logit * params.repetition_penalty };
        }
        if in_output > 0 {
            *logit -= params.frequency_penalty * in_output as f32;
            *logit -= params.presence_penalty;
        }
        if (OUTPUT.len() as u32) < params.min_tokens && [1, 3].contains(&id) {
            *logit = f32::NEG_INFINITY;
        }
    }
    row
}

/// Takes the ranking apart token by token: greedy must follow the adjusted row to its end.
fn assert_ranking_follows(params: SamplingParams) {
    for seed in 0..10 {
        let mut row = logits(seed, 64);
        let mut expected = adjusted(&row, &params);
        let state =
            SamplerState::new(&sampling(SamplingParams { temperature: 0.0, ..params.clone() }, &PROMPT, &OUTPUT));
        for _ in 0..64 {
            let Some(best) = (0..64).rev().max_by(|&a, &b| expected[a].partial_cmp(&expected[b]).unwrap()) else {
                break;
            };
            if expected[best] == f32::NEG_INFINITY {
                break;
            }
            assert_eq!(choose(&state, &row) as usize, best, "seed {seed}: {params:?}");
            row[best] = f32::NEG_INFINITY;
            expected[best] = f32::NEG_INFINITY;
        }
    }
}

#[test]
fn each_penalty_alone_and_all_together() {
    let off = SamplingParams::default();
    for params in [
        SamplingParams { repetition_penalty: 1.7, ..off.clone() },
        SamplingParams { repetition_penalty: 0.6, ..off.clone() },
        SamplingParams { presence_penalty: 1.25, ..off.clone() },
        SamplingParams { presence_penalty: -2.0, ..off.clone() },
        SamplingParams { frequency_penalty: 0.75, ..off.clone() },
        SamplingParams { logit_bias: vec![(9, 4.5), (0, -100.0), (63, 2.25)], ..off.clone() },
        SamplingParams { min_tokens: 6, ..off.clone() },
        SamplingParams { min_tokens: 5, ..off.clone() },
        SamplingParams {
            repetition_penalty: 1.3,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            logit_bias: vec![(6, 3.0), (1, 90.0)],
            min_tokens: 9,
            ..off
        },
    ] {
        assert_ranking_follows(params);
    }
}

#[test]
fn bias_cannot_lift_an_end_token_before_its_time() {
    let params = SamplingParams { temperature: 0.0, logit_bias: vec![(3, 100.0)], min_tokens: 2, ..Default::default() };
    let mut state = state(params);
    let row = logits(1, 64);
    for expected_end in [false, false, true] {
        let token = choose(&state, &row);
        assert_eq!(token == 3, expected_end);
        state.append(token);
    }
}

#[test]
fn a_bias_far_out_of_the_vocabulary_changes_nothing() {
    let row = logits(2, 64);
    let plain = choose(&state(SamplingParams { temperature: 0.0, ..Default::default() }), &row);
    let params =
        SamplingParams { temperature: 0.0, logit_bias: vec![(64, 100.0), (u32::MAX, 100.0)], ..Default::default() };
    assert_eq!(choose(&state(params), &row), plain);
}

#[test]
fn state_after_resuming_equals_state_after_appending() {
    let params = SamplingParams { repetition_penalty: 1.4, frequency_penalty: 0.9, seed: 11, ..Default::default() };
    let resumed = SamplerState::new(&sampling(params.clone(), &PROMPT, &OUTPUT));
    let mut grown = SamplerState::new(&sampling(params, &PROMPT, &OUTPUT[..2]));
    [9, 9, 20, 40, 41].iter().for_each(|&token| grown.append(token));
    grown.truncate(5);
    assert_eq!(grown.position(), resumed.position());
    for seed in 0..40 {
        let row = logits(seed, 64);
        assert_eq!(choose(&grown, &row), choose(&resumed, &row));
    }
}
