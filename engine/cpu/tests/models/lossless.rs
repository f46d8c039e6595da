//! Speculation changes no token: whole engines with it and without it give the same outputs, whatever is asked for.

use std::sync::Arc;

use engine::executor::{Capacity, Speculation};
use engine::spec::DraftShape;
use engine::types::{FinishReason, SamplingParams};

use crate::support::{Golden, Numbers, Output, Served, assert_close, collect};

fn capacity(pages: u32) -> Capacity {
    Capacity { pages, page_size: 16, slots: 16, rows: 128, context: 128, vocabulary: 512 }
}

fn speculation(golden: &Golden, shape: DraftShape) -> Option<Speculation> {
    Some(Speculation { head: Arc::new(golden.head()), shape })
}

fn tree() -> DraftShape {
    DraftShape::new(4, 4, 12).expect("a shape")
}

fn ids(output: &Output) -> Vec<u32> {
    output.tokens.iter().map(|token| token.id).collect()
}

#[test]
fn a_thousand_greedy_prompts() {
    let golden = Golden::open("eagle3-tiny");
    let mut numbers = Numbers(1);
    let params = SamplingParams { temperature: 0.0, max_tokens: 16, ..SamplingParams::default() };
    let requests: Vec<_> = (0..1000).map(|_| (numbers.prompt(&golden, 24), params.clone())).collect();
    let expected = Served::start(&golden, 1, capacity(128), None).answer(&requests);
    for shape in [DraftShape::chain(4), tree()] {
        let mut served = Served::start(&golden, 1, capacity(128), speculation(&golden, shape));
        for (number, (actual, expected)) in served.answer(&requests).iter().zip(&expected).enumerate() {
            assert_eq!(actual, expected, "{shape:?}, prompt {number}: {:?}", requests[number].0);
        }
        let stats = served.stats();
        assert!(stats.drafts > 3000 && stats.accepted_tokens > stats.drafts, "it speculated: {stats:?}");
    }
}

#[test]
fn every_sampling_parameter_and_several_outputs() {
    let golden = Golden::open("eagle3-tiny");
    let mut numbers = Numbers(2);
    let requests: Vec<_> = (0..150).map(|_| (numbers.prompt(&golden, 40), numbers.params())).collect();
    let expected = Served::start(&golden, 1, capacity(128), None).answer(&requests);
    assert!(expected.iter().filter(|output| output.reason == Some(FinishReason::Stop)).count() > 20);
    // A chain computes exactly what plain decoding does; in a tree the order of sums differs.
    for (shape, ranks) in [(DraftShape::chain(4), 1), (DraftShape::chain(4), 2), (tree(), 2)] {
        let mut served = Served::start(&golden, ranks, capacity(128), speculation(&golden, shape));
        for (number, (actual, expected)) in served.answer(&requests).iter().zip(&expected).enumerate() {
            assert_eq!((ids(actual), actual.reason), (ids(expected), expected.reason), "{shape:?}, output {number}");
            for (actual, expected) in actual.tokens.iter().zip(&expected.tokens) {
                let (Some(actual), Some(expected)) = (&actual.logprobs, &expected.logprobs) else { continue };
                assert_eq!(actual.rank, expected.rank);
                let values = |of: &engine::types::TokenLogprobs| -> Vec<f32> {
                    std::iter::once(of.logprob).chain(of.top.iter().map(|(_, value)| *value)).collect()
                };
                assert_close(&values(actual), &values(expected), "log-probabilities");
            }
        }
        assert!(served.stats().accepted_tokens > 500, "it speculated: {:?}", served.stats());
    }
}

/// Too few pages: sequences are preempted, computed again from the prefix tree, and some are aborted.
#[test]
fn preemptions_and_aborts() {
    let golden = Golden::open("eagle3-tiny");
    let mut numbers = Numbers(3);
    let greedy = SamplingParams { temperature: 0.0, max_tokens: 48, ..SamplingParams::default() };
    let requests: Vec<_> = (0..60).map(|_| (numbers.prompt(&golden, 30), greedy.clone())).collect();
    let expected = Served::start(&golden, 1, capacity(128), None).answer(&requests);
    for shape in [DraftShape::chain(4), tree()] {
        let mut served = Served::start(&golden, 1, capacity(20), speculation(&golden, shape));
        let running: Vec<_> = requests.iter().map(|(prompt, params)| served.submit(prompt, params)).collect();
        let aborted = |number: usize| number % 7 == 3;
        for (number, (id, _)) in running.iter().enumerate().filter(|(number, _)| aborted(*number)) {
            if number % 2 == 0 {
                std::thread::yield_now();
            }
            served.engine.abort(*id);
        }
        for (number, (_, events)) in running.iter().enumerate() {
            let output = &collect(1, events)[0];
            let whole = ids(&expected[number]);
            if aborted(number) {
                assert_eq!(ids(output), whole[..output.tokens.len()], "{shape:?}, prompt {number} as far as it came");
            } else {
                assert_eq!(ids(output), whole, "{shape:?}, prompt {number}");
            }
        }
        let stats = served.stats();
        assert!(stats.preemptions > 0 && stats.accepted_tokens > 200, "{stats:?}");
        assert_eq!(stats.integrity_failures, 0);
    }
}

/// The second time a prompt comes from the prefix cache, and so do the head's rows: the same drafts are accepted.
#[test]
fn a_cached_prefix_has_the_heads_rows_too() {
    let golden = Golden::open("eagle3-tiny");
    let greedy = SamplingParams { temperature: 0.0, max_tokens: 40, ..SamplingParams::default() };
    let prompt: Vec<u32> = golden.prompts[2].iter().chain(&golden.greedy[2]).copied().take(50).collect();
    let mut served = Served::start(&golden, 1, capacity(64), speculation(&golden, DraftShape::chain(4)));
    let mut round = || {
        let before = served.stats();
        let output = served.answer(&[(prompt.clone(), greedy.clone())]).remove(0);
        let after = served.stats();
        let hits = after.prefix_hits - before.prefix_hits;
        (output, after.drafts - before.drafts, after.accepted_tokens - before.accepted_tokens, hits)
    };
    let (first, second) = (round(), round());
    assert_eq!((first.3, second.3), (0, 48), "three pages of the prompt are found again");
    assert_eq!((first.0, first.1, first.2), (second.0, second.1, second.2));
}
