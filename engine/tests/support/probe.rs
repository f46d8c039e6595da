//! Does with a file everything that loading a model does. Used on damaged inputs by a test and by the fuzz targets:
//! whatever the bytes are, the outcome is a value or an error that names the file.

use std::sync::Arc;

use engine::load::{LoadError, parse_config, read_gguf_config};
use engine::model::{Attention, ModelConfig};
use engine::tokenizer::{Framing, Special, Tokenizer, TokenizerSettings};
use engine::weights::dequantise::dequantise;
use engine::weights::{FileBytes, GgufWeights, SafetensorsWeights, WeightError, WeightSource};

/// The name under which inputs are read.
const PATH: &str = "folder/input";

/// Text with characters of every length, special tokens and runs of spaces.
const TEXT: &str = "a b  <s>héllo</s> 12 \n\t漢🙂";

/// Whether the input was accepted.
pub fn gguf(input: &[u8], with_tokenizer: bool) -> bool {
    let bytes: FileBytes = Arc::new(input.to_vec());
    let weights = match GgufWeights::from_bytes(PATH, bytes) {
        Ok(weights) => weights,
        Err(error) => return refused(&error.to_string()),
    };
    tensors(&weights, input.len());
    match read_gguf_config(&weights) {
        Ok(config) => check_config(&config),
        Err(error) => _ = refused(&error.to_string()),
    }
    if with_tokenizer {
        match Tokenizer::from_gguf(&weights) {
            Ok(tokenizer) => tokenizer.iter().for_each(round_trip),
            Err(error) => _ = refused(&error.to_string()),
        }
    }
    true
}

pub fn safetensors(input: &[u8]) -> bool {
    let bytes: FileBytes = Arc::new(input.to_vec());
    match SafetensorsWeights::from_bytes(PATH, bytes) {
        Ok(weights) => tensors(&weights, input.len()),
        Err(error) => return refused(&error.to_string()),
    }
    true
}

pub fn config(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    match parse_config(PATH, text) {
        Ok(config) => check_config(&config),
        Err(LoadError::Config(error)) => return !error.key.is_empty() && refused(&error.to_string()),
        Err(error) => return refused(&error.to_string()),
    }
    true
}

pub fn tokenizer(input: &[u8]) -> bool {
    match Tokenizer::from_json(PATH, input, &TokenizerSettings::default()) {
        Ok(tokenizer) => round_trip(&tokenizer),
        Err(error) => return refused(&error.to_string()),
    }
    true
}

/// An error must say which file it is about.
fn refused(message: &str) -> bool {
    assert!(message.starts_with(PATH), "the error names no file: {message}");
    false
}

/// Reads every tensor. Its bytes must be as many as type and shape say.
fn tensors(weights: &dyn WeightSource, file_length: usize) {
    for name in weights.names() {
        let info = match weights.info(&name) {
            Ok(info) => info,
            Err(WeightError::File { .. }) => continue,
            Err(error) => panic!("a listed tensor does not exist: {error}"),
        };
        let view = weights.tensor(&name, &info.shape).expect("the tensor has the shape that it says");
        assert_eq!(Some(view.bytes.len()), info.kind.size(&info.shape), "{name}");
        assert!(view.bytes.len() <= file_length);
        let mut values = [0.0; 512];
        if let Some(convert) = dequantise(view.kind) {
            convert(&view.bytes, &mut values);
        }
    }
}

/// What later code relies on without checking it again.
fn check_config(config: &ModelConfig) {
    assert_eq!(config.layer_kinds.len(), config.layers);
    assert!(config.layers <= 4096 && config.hidden > 0 && config.heads > 0 && config.context > 0);
    assert!(config.rope.dimension > 0 && config.rope.dimension.is_multiple_of(2));
    assert!(config.norm_epsilon > 0.0 && config.rope.theta > 0.0);
    assert!(config.eos_tokens.iter().chain(&config.bos_token).all(|token| (*token as usize) < config.vocabulary));
    if let Attention::Grouped { key_value_heads, head_dimension, .. } = config.attention {
        assert!(config.heads.is_multiple_of(key_value_heads) && config.rope.dimension <= head_dimension);
    }
    if let Some(moe) = &config.moe {
        assert!(moe.experts_per_token <= moe.experts && moe.experts.is_multiple_of(moe.groups));
        assert!(moe.top_groups <= moe.groups);
    }
}

/// Encodes and decodes; a stream of the tokens is the same text as all at once.
fn round_trip(tokenizer: &Tokenizer) {
    let Ok(ids) = tokenizer.encode(TEXT, Framing::Added) else { return };
    let (mut stream, mut text) = (tokenizer.stream(Special::Kept), String::new());
    for id in &ids {
        assert!((*id as usize) < tokenizer.vocabulary_size());
        stream.push(*id, &mut text);
    }
    stream.finish(&mut text);
    let whole = tokenizer.decode(&ids, Special::Kept);
    assert!(text == whole || text.strip_prefix(' ') == Some(&whole), "{text:?} {whole:?}");
}
