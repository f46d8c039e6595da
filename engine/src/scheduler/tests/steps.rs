//! Single mechanisms, step by step.

use super::*;
use crate::types::{LogitsRows, Phase};

#[test]
fn a_prompt_runs_in_chunks_and_then_decodes() {
    let mut harness = Harness::new(Setting { max_prefill_rows: 7, ..Setting::ample() });
    harness.submit(prompt(1, 17), greedy(3));
    let mut seen = Vec::new();
    while !harness.scheduler.is_idle() {
        harness.step();
        let entry = &harness.last.entries[0];
        seen.push((entry.phase, entry.start, entry.tokens.len(), entry.logits, entry.begin.is_some()));
    }
    let expected = [
        (Phase::Prefill, 0, 7, LogitsRows::None, true),
        (Phase::Prefill, 7, 7, LogitsRows::None, false),
        (Phase::Prefill, 14, 3, LogitsRows::Last, false),
        (Phase::Decode, 17, 1, LogitsRows::Last, false),
        (Phase::Decode, 18, 1, LogitsRows::Last, false),
    ];
    assert_eq!(seen, expected);
    harness.assert_answers();
}

#[test]
fn a_repeated_prompt_computes_only_what_is_not_cached() {
    let mut harness = Harness::new(Setting::ample());
    harness.submit(prompt(1, 40), greedy(2));
    harness.run(10);
    let second = harness.submit(prompt(1, 40), greedy(2))[0];
    harness.step();
    assert_eq!((harness.last.entries[0].start, harness.last.entries[0].tokens.len()), (32, 8));
    assert_eq!(harness.scheduler.cached_tokens(second), Some(32));
    harness.run(10);
    let stats = harness.scheduler.stats();
    assert_eq!((stats.prefix_queries, stats.prefix_hits, stats.prompt_tokens), (80, 32, 80));
    harness.assert_answers();
}

#[test]
fn without_the_prefix_cache_nothing_is_shared_between_requests() {
    let mut harness = Harness::new(Setting { prefix_cache: false, ..Setting::ample() });
    for _ in 0..2 {
        harness.submit(prompt(1, 40), greedy(2));
        harness.step();
        assert_eq!((harness.last.entries[0].start, harness.last.entries[0].tokens.len()), (0, 40));
        harness.run(10);
    }
    assert_eq!(harness.scheduler.stats().usage.cached, 0);
    harness.assert_answers();
}

#[test]
fn salts_keep_tenants_apart() {
    let mut harness = Harness::new(Setting::ample());
    for (salt, start) in [(Some("a"), 0), (Some("b"), 0), (None, 0), (Some("a"), 32), (None, 32)] {
        harness.submit_as(prompt(1, 40), greedy(2), 0, salt);
        harness.step();
        assert_eq!(harness.last.entries[0].start, start, "salt {salt:?}");
        harness.run(10);
    }
    harness.assert_answers();
}

#[test]
fn outputs_of_one_request_share_the_prompt() {
    for prefix_cache in [true, false] {
        let mut harness = Harness::new(Setting { prefix_cache, ..Setting::ample() });
        let params = SamplingParams { temperature: 1.0, seed: 9, n: 4, max_tokens: 5, ..greedy(5) };
        harness.submit(prompt(2, 50), params);
        harness.step();
        assert_eq!(harness.last.entries.len(), 1);
        harness.step();
        let starts: Vec<u32> = harness.last.entries.iter().map(|entry| entry.start).collect();
        assert_eq!(starts, [48, 48, 48, 50]);
        assert_eq!(harness.scheduler.stats().usage.held, 3 + 4);
        harness.run(20);
        let distinct: std::collections::HashSet<Vec<u32>> =
            harness.outputs.values().map(|output| output.tokens.iter().map(|token| token.id).collect()).collect();
        assert_eq!(distinct.len(), 4);
        harness.assert_answers();
    }
}

#[test]
fn prompt_logprobs_compute_every_row_and_come_once() {
    let mut harness = Harness::new(Setting { max_prefill_rows: 9, ..Setting::ample() });
    harness.submit(prompt(1, 40), greedy(2));
    harness.run(20);
    let params = SamplingParams { prompt_logprobs: Some(2), n: 2, ..greedy(3) };
    harness.submit(prompt(1, 40), params.clone());
    harness.step();
    assert_eq!((harness.last.entries[0].start, harness.last.entries[0].logits), (0, LogitsRows::All));
    harness.run(20);
    harness.submit(prompt(1, 1), params);
    harness.run(20);
    harness.assert_answers();
}

#[test]
fn the_last_in_rank_is_preempted_and_answers_the_same() {
    for (overlap, following) in [(false, false), (true, false), (true, true)] {
        let mut harness = Harness::new(Setting { pages: 6, overlap, following, ..Setting::ample() });
        for seed in 0..3 {
            harness.submit(prompt(seed, 20), greedy(40));
        }
        harness.run(400);
        assert!(harness.scheduler.stats().preemptions > 0);
        harness.assert_answers();
    }
}

#[test]
fn verify_entries_reserve_the_longest_outcome_and_give_the_rest_back() {
    let mut harness = Harness::new(Setting { verify_tokens: 20, ..Setting::ample() });
    harness.submit(prompt(1, 15), greedy(60));
    harness.step();
    harness.step();
    let entry = &harness.last.entries[0];
    assert_eq!((entry.phase, entry.start, entry.verify_tokens, entry.pages.len()), (Phase::Verify, 15, 20, 3));
    harness.run(60);
    assert!(harness.steps < 40, "{} steps for 60 tokens", harness.steps);
    harness.assert_answers();
}

#[test]
fn a_verify_entry_shrinks_before_anything_is_preempted() {
    let mut harness = Harness::new(Setting { pages: 3, verify_tokens: 30, ..Setting::ample() });
    harness.submit(prompt(1, 15), greedy(3));
    harness.submit(prompt(2, 15), greedy(3));
    harness.step();
    harness.step();
    // Two more tokens each would need a second page each, and only one is left.
    let entries = harness.last.entries.iter().map(|entry| (entry.phase, entry.verify_tokens, entry.pages.len()));
    assert_eq!(entries.collect::<Vec<_>>(), [(Phase::Verify, 2, 2), (Phase::Decode, 0, 1)]);
    assert_eq!(harness.scheduler.stats().preemptions, 0);
    harness.run(20);
    harness.assert_answers();
}

#[test]
fn an_answer_that_does_not_fit_the_step_is_refused() {
    let mut harness = Harness::new(Setting::ample());
    assert!(harness.scheduler.commit(&StepOutput::default()).unwrap_err().0.contains("no step is in flight"));
    let id = harness.submit(prompt(1, 20), greedy(4))[0];
    let plan = harness.scheduler.plan();
    harness.scheduler.launch(plan).unwrap();
    let entry = |ids: &[u32]| crate::types::EntryOutput {
        tokens: ids.iter().map(|id| TokenOutput { id: *id, logprobs: None }).collect(),
        ..Default::default()
    };
    for (entries, message) in [
        (vec![], "1 entries were asked for and 0 came"),
        (vec![entry(&[])], "brought 0 tokens"),
        (vec![entry(&[1, 2])], "brought 2 tokens"),
        (vec![entry(&[VOCABULARY])], "outside of the vocabulary"),
    ] {
        let error = harness.scheduler.commit(&StepOutput { entries, ..StepOutput::default() }).unwrap_err();
        assert!(error.0.contains(message), "{error}");
    }
    assert_eq!(harness.scheduler.fail_step(), [id]);
    assert!(harness.scheduler.is_idle());
    harness.audit();
}

/// A step can follow where each of its tokens is known or sure to come, and then names the entries that bring them.
#[test]
fn steps_follow_on_one_in_flight() {
    let mut harness = Harness::new(Setting { overlap: true, following: true, ..Setting::ample() });
    harness.submit(prompt(1, 20), greedy(30));
    harness.submit(prompt(2, 5), greedy(10));
    harness.step();
    assert_eq!((harness.steps, harness.followed), (2, 1), "the decodes follow on the prompts");
    let tokens =
        |batch: &Batch| batch.entries.iter().map(|entry| (entry.tokens.clone(), entry.start)).collect::<Vec<_>>();
    assert_eq!(tokens(&harness.last), [(vec![chosen(0)], 20), (vec![chosen(1)], 5)]);
    // The one in flight is committed first; a prompt that comes cannot follow.
    harness.submit(prompt(3, 7), greedy(5));
    harness.step();
    assert_eq!((harness.steps, harness.followed), (2, 1));
    harness.run(40);
    harness.assert_answers();
    assert_eq!(harness.steps - harness.followed, 2, "but for prompts every step follows");
}

/// An end that only the token tells: the sequence computes one token more, which is dropped, and holds nothing.
#[test]
fn a_token_after_the_end_is_dropped() {
    let mut all = 0;
    for seed in 0..30 {
        let mut harness = Harness::new(Setting { overlap: true, following: true, ..Setting::ample() });
        harness.submit(prompt(seed, 20), SamplingParams { ignore_eos: false, ..greedy(30) });
        harness.submit(prompt(seed + 40, 20), greedy(5));
        harness.run(60);
        harness.assert_answers();
        let tokens = harness.outputs.values().map(|output| output.tokens.len()).max().unwrap();
        all += harness.steps - tokens;
    }
    assert!(all > 5, "some end early: {all} steps more than tokens");
}

#[test]
fn an_abort_while_rows_are_in_flight_drops_their_output() {
    let mut harness = Harness::new(Setting::ample());
    let first = harness.submit(prompt(1, 20), greedy(4))[0];
    harness.submit(prompt(2, 20), greedy(4));
    let plan = harness.scheduler.plan();
    let batch = harness.scheduler.launch(plan).unwrap();
    harness.executor.submit(batch).unwrap();
    harness.abort(first);
    let output = harness.executor.collect().unwrap();
    harness.commit(&output);
    assert!(harness.outputs[&first].tokens.is_empty());
    harness.run(20);
    harness.assert_answers();
}
