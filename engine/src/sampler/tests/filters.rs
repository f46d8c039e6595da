//! Temperature, `top_k`, `top_p`, `min_p`, greedy.

use super::*;

#[test]
fn zero_temperature_takes_the_largest_logit_and_the_smallest_id_of_a_tie() {
    let params = SamplingParams { temperature: 0.0, ..Default::default() };
    for vocabulary in [1, 2, 15, 16, 17, 100, 5000] {
        for seed in 0..50 {
            let row = logits(seed, vocabulary);
            if row.iter().all(|logit| *logit == f32::NEG_INFINITY) {
                continue;
            }
            let expected = (0..row.len()).rev().max_by(|&a, &b| row[a].partial_cmp(&row[b]).unwrap());
            assert_eq!(Some(choose(&state(params.clone()), &row) as usize), expected, "seed {seed}");
        }
    }
}

#[test]
fn top_k_of_one_is_greedy_at_any_temperature() {
    let row = logits(3, 1000);
    let greedy = choose(&state(SamplingParams { temperature: 0.0, ..Default::default() }), &row);
    for temperature in [1e-6, 0.5, 5.0] {
        let params = SamplingParams { temperature, top_k: 1, ..Default::default() };
        assert_eq!(choose(&state(params), &row), greedy);
    }
}

#[test]
fn temperature_divides_the_logits() {
    for (seed, temperature) in [(1, 0.1), (2, 0.7), (3, 1.0), (4, 1.5), (5, 10.0), (6, 0.002)] {
        assert_draws_follow(&logits(seed, 3000), SamplingParams { temperature, seed, ..Default::default() }, 60);
    }
}

#[test]
fn top_k_keeps_that_many_and_breaks_ties_by_id() {
    for (seed, top_k) in [(1, 2), (2, 5), (3, 40), (4, 999), (5, 1000), (6, 5000)] {
        assert_draws_follow(&logits(seed, 1000), SamplingParams { top_k, seed, ..Default::default() }, 60);
    }
    let equal = vec![1.5; 300];
    let params = SamplingParams { top_k: 4, ..Default::default() };
    let mut state = state(params);
    for _ in 0..200 {
        assert!(choose(&state, &equal) < 4);
        state.append(7);
    }
}

#[test]
fn top_p_keeps_the_smallest_set_that_reaches_it() {
    for (seed, top_p) in [(1, 0.01), (2, 0.3), (3, 0.9), (4, 0.99), (5, 0.99999), (6, 1e-9)] {
        assert_draws_follow(&logits(seed, 2000), SamplingParams { top_p, seed, ..Default::default() }, 60);
    }
    // 0.5, 0.25, 0.125, 0.125: two tokens reach 0.75 exactly, a third is needed for a little more.
    let row: Vec<f32> = [0.125f32, 0.5, 0.125, 0.25].iter().map(|p| p.ln()).collect();
    for (top_p, kept) in
        [(0.5, vec![1]), (0.6, vec![1, 3]), (0.75, vec![1, 3]), (0.8, vec![0, 1, 3]), (0.9, vec![0, 1, 2, 3])]
    {
        let mut state = state(SamplingParams { top_p, ..Default::default() });
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..300 {
            seen.insert(choose(&state, &row));
            state.append(7);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), kept, "top_p {top_p}");
    }
}

#[test]
fn min_p_drops_what_is_unlikely_beside_the_likeliest() {
    for (seed, min_p) in [(1, 0.01), (2, 0.1), (3, 0.5), (4, 1.0)] {
        assert_draws_follow(&logits(seed, 2000), SamplingParams { min_p, seed, ..Default::default() }, 60);
    }
}

#[test]
fn filters_apply_in_order_and_together() {
    let base = SamplingParams { temperature: 0.8, top_k: 50, top_p: 0.85, min_p: 0.05, ..Default::default() };
    for seed in 0..20 {
        assert_draws_follow(&logits(seed, 4000), SamplingParams { seed, ..base.clone() }, 30);
    }
}

#[test]
fn rows_without_a_finite_maximum_are_errors() {
    for temperature in [0.0, 1.0] {
        let state = state(SamplingParams { temperature, ..Default::default() });
        for bad in [vec![], vec![f32::NAN; 40], vec![f32::NEG_INFINITY; 3], vec![0.0, f32::INFINITY]] {
            let error = state.sample(&mut bad.clone(), &mut SamplerScratch::new()).unwrap_err();
            assert_eq!(error.position, 0);
        }
        let mut row = vec![f32::NAN; 40];
        row[17] = -3.0;
        assert_eq!(state.sample(&mut row, &mut SamplerScratch::new()).unwrap().id, 17);
    }
}
