//! Several ranks give what one rank gives.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{GOLDEN, Golden, LoudWeights, QuantisedWeights, Settings, generate, ranks, start};
use engine::collective::{CallCounters, Operation, Site};
use engine::model::{Attention, Family, ModelConfig};
use engine::types::Phase;
use engine::weights::{WeightSource, WeightType};

fn greedy(
    world_size: usize,
    model: &Arc<ModelConfig>,
    weights: &Arc<dyn WeightSource>,
    prompts: &[Vec<u32>],
) -> (Vec<Vec<u32>>, Arc<CallCounters>) {
    let counters = Arc::default();
    let mut executor = start(ranks(world_size), model, weights, &counters).expect("the ranks start");
    let results = generate(&mut executor, prompts, &Settings::greedy(8, 16));
    (results.into_iter().map(|result| result.tokens).collect(), counters)
}

#[test]
fn golden_models_at_every_world_size_that_divides_the_heads() {
    for golden in GOLDEN.map(Golden::open) {
        let (model, prompts) = (&golden.config, &golden.prompts[..2]);
        let divisors = (2..=model.heads).filter(|world_size| model.heads.is_multiple_of(*world_size));
        for world_size in divisors {
            let (tokens, _) = greedy(world_size, model, &golden.weights, prompts);
            for (tokens, expected) in tokens.iter().zip(&golden.greedy) {
                assert_eq!(tokens, &expected[..16], "{} on {world_size} ranks", golden.name);
            }
        }
    }
}

/// A Llama with a bias wherever there can be one, which only one rank may add to a sum.
fn shaped(heads: usize, key_value_heads: usize, head_dimension: usize) -> ModelConfig {
    let mut config = (*Golden::open("qwen2-tiny").config).clone();
    config.family = Family::Llama;
    config.tied_embeddings = false;
    config.mlp_bias = true;
    config.heads = heads;
    config.hidden = heads * head_dimension;
    config.rope.dimension = head_dimension;
    let (query_key_norm, bias, output_bias) = (false, true, true);
    config.attention = Attention::Grouped { key_value_heads, head_dimension, query_key_norm, bias, output_bias };
    config
}

/// Greedy tokens on these world sizes equal those of one rank.
fn assert_equal_on(world_sizes: &[usize], model: ModelConfig, weights: impl WeightSource + 'static) {
    let (model, weights) = (Arc::new(model), Arc::new(weights) as Arc<dyn WeightSource>);
    let prompts = [vec![1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233], vec![7, 77, 7]];
    let (expected, _) = greedy(1, &model, &weights, &prompts);
    let distinct: BTreeSet<_> = expected.iter().flatten().collect();
    assert!(distinct.len() > 4, "the random model says more than one thing: {expected:?}");
    for world_size in world_sizes {
        let (tokens, _) = greedy(*world_size, &model, &weights, &prompts);
        assert_eq!(tokens, expected, "{} heads on {world_size} ranks", model.heads);
    }
}

/// 16 heads over 4 key-value heads, so that 8 and 16 ranks share them; 9 over 3, with an intermediate size and a
/// vocabulary that 9 does not divide; 12 over 4 on 6 ranks, where a rank's two heads read different ones.
#[test]
fn more_ranks_than_key_value_heads() {
    assert_equal_on(&[2, 8, 16], shaped(16, 4, 8), LoudWeights::new(3));
    assert_equal_on(&[3, 9], shaped(9, 3, 8), LoudWeights::new(3));
    assert_equal_on(&[2, 6, 12], shaped(12, 4, 8), LoudWeights::new(3));
}

/// SmolLM2's heads, 9 over 3 of 64, on 3 ranks, with an intermediate size of 7 blocks; and 12 heads on 2 ranks, where
/// the output projection is cut inside blocks of 256.
#[test]
fn quantised_weights_are_cut_at_and_inside_blocks() {
    for (kind, heads, blocks, world_size) in
        [(WeightType::Q4_1, 9, 7, 3), (WeightType::Q8_0, 9, 7, 3), (WeightType::Q6K, 12, 3, 2)]
    {
        let mut model = shaped(heads, 3, 64);
        model.intermediate = blocks * kind.block_elements();
        assert_equal_on(&[world_size], model, QuantisedWeights::new(kind));
    }
}

#[test]
fn a_world_size_that_does_not_divide_the_heads_is_refused() {
    let golden = Golden::open("qwen2-tiny");
    let error = start(ranks(3), &golden.config, &golden.weights, &Arc::default()).err().expect("refused");
    assert!(error.to_string().contains("4 attention heads cannot be shared equally by 3 ranks"), "{error}");
}

#[test]
fn collectives_are_counted_where_they_run() {
    let golden = Golden::open("qwen2-tiny");
    let (_, counters) = greedy(2, &golden.config, &golden.weights, &golden.prompts[..1]);
    let count = |operation, site, phase| {
        let calls = counters.snapshot().into_iter();
        let matching = calls.filter(|(key, _)| (key.operation, key.site, key.phase) == (operation, site, phase));
        matching
            .map(|(key, count)| {
                assert_eq!((&*key.algorithm, &*key.fusion), ("shared_memory", "none"));
                count
            })
            .sum::<u64>()
    };
    let layers = golden.config.layers as u64;
    // A prompt of 9 in chunks of 8 is two prefill steps, of which the last needs logits; then 15 decode steps.
    for (phase, steps, logits) in [(Phase::Prefill, 2, 1), (Phase::Decode, 15, 15)] {
        assert_eq!(count(Operation::AllReduce, Site::Embedding, phase), steps);
        assert_eq!(count(Operation::AllReduce, Site::AttentionOutput, phase), steps * layers);
        assert_eq!(count(Operation::AllReduce, Site::MlpOutput, phase), steps * layers);
        assert_eq!(count(Operation::AllGather, Site::LogitsGather, phase), logits);
    }
    let (_, alone) = greedy(1, &golden.config, &golden.weights, &golden.prompts[..1]);
    assert_eq!(alone.snapshot(), [], "a single rank has nobody to call");
}
