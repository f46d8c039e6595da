//! What holds for many draws together.

use super::*;

/// Pearson's statistic of `counts` against `expected` probabilities; cells without probability must be empty.
fn chi_square(counts: &[u64], expected: &[f64]) -> (f64, usize) {
    let total: u64 = counts.iter().sum();
    let mut statistic = 0.0;
    let mut cells = 0;
    for (&count, &probability) in counts.iter().zip(expected) {
        let mean = probability * total as f64;
        if mean == 0.0 {
            assert_eq!(count, 0);
            continue;
        }
        assert!(mean >= 5.0, "too few draws for Pearson's test");
        statistic += (count as f64 - mean).powi(2) / mean;
        cells += 1;
    }
    (statistic, cells - 1)
}

/// Above the mean of a chi-square variable by five standard deviations: one in a million by chance.
fn assert_fits(counts: &[u64], expected: &[f64]) {
    let (statistic, freedom) = chi_square(counts, expected);
    let bound = freedom as f64 + 5.0 * (2.0 * freedom as f64).sqrt();
    assert!(statistic < bound, "chi-square {statistic} with {freedom} degrees of freedom");
}

#[test]
fn first_tokens_over_many_seeds_follow_the_distribution() {
    let row: Vec<f32> = (0..64).map(|id| ((id * 37) % 64) as f32 / 20.0).collect();
    for params in [
        SamplingParams { temperature: 0.9, ..Default::default() },
        SamplingParams { temperature: 1.2, top_k: 20, top_p: 0.9, min_p: 0.1, ..Default::default() },
    ] {
        let mut counts = vec![0; row.len()];
        for seed in 0..50_000 {
            counts[choose(&state(SamplingParams { seed, ..params.clone() }), &row) as usize] += 1;
        }
        assert_fits(&counts, &distribution(&row, &params));
    }
}

#[test]
fn positions_and_choices_of_one_seed_are_independent() {
    let row = vec![0.0; 8];
    let mut pairs = vec![0; 64];
    for choice in 0..20 {
        let sampling = Sampling { choice, ..sampling(SamplingParams { seed: 42, ..Default::default() }, &[5], &[]) };
        let mut state = SamplerState::new(&sampling);
        let mut previous = choose(&state, &row);
        for _ in 0..1000 {
            state.append(previous);
            let token = choose(&state, &row);
            pairs[(previous * 8 + token) as usize] += 1;
            previous = token;
        }
    }
    assert_fits(&pairs, &[1.0 / 64.0; 64]);
}

#[test]
fn the_same_seed_gives_the_same_tokens_and_another_one_does_not() {
    let row = logits(5, 2000);
    let run = |seed| {
        let mut state = state(SamplingParams { seed, ..Default::default() });
        (0..50)
            .map(|_| {
                let token = choose(&state, &row);
                state.append(token);
                token
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_token_of_no_weight_is_never_drawn_at_the_ends_of_the_range() {
    let mut row = vec![f32::NEG_INFINITY; 5000];
    row[1500] = 1.0;
    row[3000] = 1.0;
    let shape = crate::sampler::choose::Shape { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 };
    let draw = |random| crate::sampler::choose::draw(&row, shape, random, &mut SamplerScratch::new());
    assert_eq!(draw(0), Some(1500));
    assert_eq!(draw((1 << 63) - 1), Some(1500));
    assert_eq!(draw(1 << 63), Some(3000));
    assert_eq!(draw(u64::MAX), Some(3000));
}
