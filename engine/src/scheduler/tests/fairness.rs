//! Neither prompts nor decodes starve, and rank decides who waits.

use super::*;
use crate::types::Phase;

fn rows_of(harness: &Harness, phase: Phase) -> usize {
    harness.last.entries.iter().filter(|entry| entry.phase == phase).map(|entry| entry.tokens.len()).sum()
}

#[test]
fn running_outputs_get_their_token_in_every_step_of_a_long_prompt() {
    let mut harness = Harness::new(Setting { rows: 16, ..Setting::ample() });
    for seed in 0..4 {
        harness.submit(prompt(seed, 3), greedy(100));
    }
    harness.step();
    harness.submit(prompt(9, 300), greedy(2));
    let mut steps = 0;
    while rows_of(&harness, Phase::Prefill) > 0 {
        harness.step();
        steps += 1;
        assert_eq!(rows_of(&harness, Phase::Decode), if steps > 25 { 5 } else { 4 });
        assert_eq!(rows_of(&harness, Phase::Prefill), if steps > 25 { 0 } else { 12 });
    }
    assert_eq!(steps, 26);
}

#[test]
fn a_prompt_advances_although_decodes_could_fill_every_row() {
    let mut harness = Harness::new(Setting { rows: 8, slots: 12, ..Setting::ample() });
    for seed in 0..11 {
        harness.submit(prompt(seed, 1), greedy(60));
    }
    for _ in 0..4 {
        harness.step();
    }
    let long = harness.submit(prompt(20, 40), greedy(1))[0];
    for _ in 0..20 {
        harness.step();
        assert!(rows_of(&harness, Phase::Decode) >= 6);
    }
    assert!(harness.outputs[&long].finish.is_some());
    // Eleven outputs took turns on the rows that were left: all of them have come equally far.
    let lengths: Vec<usize> = harness.outputs.values().take(11).map(|output| output.tokens.len()).collect();
    let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
    assert!(most - least <= 4, "{lengths:?}");
}

#[test]
fn a_stream_of_small_requests_does_not_hold_up_a_large_one() {
    let mut harness = Harness::new(Setting { pages: 20, slots: 8, rows: 32, ..Setting::ample() });
    for seed in 0..6 {
        harness.submit(prompt(seed, 30), greedy(10));
    }
    let large = harness.submit(prompt(40, 250), greedy(5))[0];
    for seed in 0..400 {
        harness.submit(prompt(seed, 20), greedy(8));
        harness.step();
        if harness.outputs[&large].finish.is_some() {
            assert!(seed < 80, "the large request took {seed} steps");
            return;
        }
    }
    panic!("the large request starved");
}

#[test]
fn priority_then_arrival_decides_who_is_admitted() {
    let mut harness = Harness::new(Setting { slots: 1, ..Setting::ample() });
    let ids: Vec<SequenceId> = [(5, 1), (0, 2), (5, 3), (-1, 4)]
        .map(|(priority, seed)| harness.submit_as(prompt(seed, 5), greedy(3), priority, None)[0])
        .to_vec();
    let mut order = Vec::new();
    while !harness.scheduler.is_idle() {
        harness.step();
        order.extend(
            ids.iter()
                .filter(|id| harness.outputs[*id].finish.is_some() && !order.contains(*id))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(order, [ids[3], ids[1], ids[0], ids[2]]);
}

#[test]
fn the_first_in_rank_is_never_preempted() {
    let mut harness = Harness::new(Setting { pages: 5, ..Setting::ample() });
    let first = harness.submit(prompt(1, 10), greedy(70))[0];
    for seed in 2..6 {
        harness.submit(prompt(seed, 10), greedy(70));
    }
    for step in 1..=70 {
        harness.step();
        assert_eq!(harness.outputs[&first].tokens.len(), step);
    }
    assert!(harness.scheduler.stats().preemptions > 0);
    harness.run(1000);
    harness.assert_answers();
}
