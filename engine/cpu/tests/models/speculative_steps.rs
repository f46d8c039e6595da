//! Whole speculative cycles through the executor, against complete runs of the reference implementation of EAGLE-3.

use std::sync::Arc;

use engine::executor::{RanksConfig, RanksExecutor, Speculation};
use engine::spec::DraftShape;
use serde_json::Value;

use crate::support::{Generated, Golden, Settings, config, generate, ranks, tokens};

fn start(golden: &Golden, world_size: usize, shape: DraftShape) -> RanksExecutor {
    let speculation = Some(Speculation { head: Arc::new(golden.head()), shape });
    let config = RanksConfig { speculation, ..config(&golden.config, &golden.weights, &Arc::default()) };
    RanksExecutor::start(ranks(world_size), config, |_| {}).expect("the ranks start")
}

fn shape(steps: usize, topk: usize, tokens: usize) -> DraftShape {
    DraftShape::new(steps, topk, tokens).expect("a shape")
}

fn compare(actual: &Generated, run: &Value, what: &str) {
    let expected = tokens(&run["output_tokens"]);
    let count = actual.tokens.len().min(expected.len());
    assert!(count > 4, "{what}");
    assert_eq!(actual.tokens[..count], expected[..count], "{what}");
    let lengths = match run["accept_lengths"].as_array() {
        Some(_) => tokens(&run["accept_lengths"]),
        None => run["cycles"].as_array().expect("cycles").iter().map(|cycle| number(&cycle["accept_length"])).collect(),
    };
    let count = actual.accepted.len().min(lengths.len());
    assert!(count > 1, "{what}");
    assert_eq!(actual.accepted[..count], lengths[..count], "{what}: accepted drafts");
}

fn number(value: &Value) -> u32 {
    value.as_u64().expect("a number") as u32
}

#[test]
fn outputs_and_accept_lengths_are_the_references() {
    let golden = Golden::open("eagle3-tiny");
    for (name, shape, most) in [("tree", shape(4, 4, 16), 50), ("chain", DraftShape::chain(4), 50)] {
        let mut executor = start(&golden, 1, shape);
        for (prompt, run) in golden.runs(name).iter().enumerate() {
            let settings = Settings::greedy(64, most).verifying(&[shape.verify_tokens as u32]);
            let results = generate(&mut executor, &golden.prompts[prompt..=prompt], &settings);
            compare(&results[0], run, &format!("{name}, prompt {prompt}"));
            assert_eq!(results[0].tokens[..most], golden.greedy[prompt][..most], "{name}, prompt {prompt}");
        }
    }
    let shape = shape(6, 10, 60);
    let mut executor = start(&golden, 1, shape);
    for (prompt, run) in golden.runs("wide").iter().enumerate() {
        let settings = Settings::greedy(64, 10).verifying(&[60]);
        compare(&generate(&mut executor, &golden.prompts[prompt..=prompt], &settings)[0], run, "wide");
    }
}

/// Chunks of prompts beside verify entries; widths that change from step to step, down to plain decodes.
#[test]
fn mixed_batches_chunks_and_changing_widths_change_no_token() {
    let golden = Golden::open("eagle3-tiny");
    for shape in [shape(4, 4, 12), DraftShape::chain(4)] {
        let mut executor = start(&golden, 1, shape);
        let most = shape.verify_tokens as u32;
        for (chunk, widths) in [(1, vec![most]), (3, vec![most, 0, 2]), (7, vec![0, 3, most, 1, 1, 4])] {
            let settings = Settings::greedy(chunk, 40).verifying(&widths);
            let results = generate(&mut executor, &golden.prompts, &settings);
            for (prompt, result) in results.iter().enumerate() {
                assert_eq!(result.tokens[..40], golden.greedy[prompt][..40], "{shape:?}, {widths:?}, prompt {prompt}");
                assert!(result.accepted.iter().sum::<u32>() > 8, "the head drafts well: {:?}", result.accepted);
            }
        }
    }
}

/// The same drafts are accepted on every number of ranks: their caches and features are the same.
#[test]
fn several_ranks_accept_what_one_rank_accepts() {
    let golden = Golden::open("eagle3-tiny");
    for shape in [shape(4, 4, 16), DraftShape::chain(4)] {
        let settings = Settings::greedy(5, 40).verifying(&[shape.verify_tokens as u32]);
        let expected = generate(&mut start(&golden, 1, shape), &golden.prompts[..3], &settings);
        for world_size in [2, 4] {
            let results = generate(&mut start(&golden, world_size, shape), &golden.prompts[..3], &settings);
            assert_eq!(results, expected, "{shape:?} on {world_size} ranks");
        }
    }
}
