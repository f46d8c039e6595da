//! Random weights.

use std::path::Path;

use engine::load::{LoadFormat, OpenOptions, open_model};
use engine::weights::dequantise::dequantise;
use engine::weights::{DummyWeights, WeightSource, WeightType};

fn values(weights: &DummyWeights, name: &str, shape: &[usize]) -> Vec<f32> {
    let view = weights.tensor(name, shape).unwrap_or_else(|error| panic!("{error}"));
    let mut values = vec![0.0; shape.iter().product()];
    dequantise(view.kind).expect("is a weight type")(&view.bytes, &mut values);
    values
}

#[test]
fn weights_are_normal_and_reproducible() {
    let weights = DummyWeights::new(7, "float32");
    let first = values(&weights, "model.layers.0.mlp.up_proj.weight", &[100, 100]);
    assert_eq!(first, values(&DummyWeights::new(7, "float32"), "model.layers.0.mlp.up_proj.weight", &[100, 100]));
    assert_ne!(first, values(&DummyWeights::new(8, "float32"), "model.layers.0.mlp.up_proj.weight", &[100, 100]));
    assert_ne!(first, values(&weights, "model.layers.1.mlp.up_proj.weight", &[100, 100]));
    let mean = first.iter().sum::<f32>() / 1e4;
    let deviation = (first.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 1e4).sqrt();
    // Four standard errors of 10,000 samples.
    assert!(mean.abs() < 0.0008 && (deviation - 0.02).abs() < 0.0006, "{mean} {deviation}");
    let within = first.iter().filter(|value| value.abs() < 0.02).count();
    assert!((6500..7100).contains(&within), "{within} of 10000 within one standard deviation; 68 % is normal");
}

#[test]
fn normalisation_weights_are_one() {
    let weights = DummyWeights::new(7, "bfloat16");
    assert!(values(&weights, "model.layers.0.input_layernorm.weight", &[16]).iter().all(|value| *value == 1.0));
    assert_eq!(weights.tensor("lm_head.weight", &[4, 4]).map(|view| view.kind).ok(), Some(WeightType::Bf16));
}

#[test]
fn a_configuration_is_enough() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/llama-3.1-8b.json");
    let options = OpenOptions { format: LoadFormat::Dummy, seed: 3, ..OpenOptions::default() };
    let model = open_model(&path, &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((model.config.layers, model.config.dtype.as_str()), (32, "bfloat16"));
    let view = model.source.tensor("model.layers.31.self_attn.k_proj.weight", &[1024, 4096]);
    assert_eq!(view.map(|view| view.bytes.len()).ok(), Some(1024 * 4096 * 2));
}

#[test]
fn absurd_sizes_are_an_error() {
    let weights = DummyWeights::new(7, "float32");
    let error = weights.tensor("x", &[1 << 40, 1 << 20]).expect_err("does not fit").to_string();
    assert_eq!(error, "random weights: there is no memory for tensor `x` of shape [1099511627776, 1048576]");
    assert!(weights.tensor("x", &[usize::MAX, 2]).is_err());
}
