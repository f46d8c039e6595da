//! GGUF files, whole and damaged. `data/tiny-llama.gguf` is written by the `gguf` Python package.

mod support;

use std::path::{Path, PathBuf};

use engine::load::{LoadFormat, OpenOptions, open_model, read_config};
use engine::model::{Attention, Family, LayerKind, RopeScaling};
use engine::weights::dequantise::dequantise;
use engine::weights::{GgufWeights, WeightError, WeightSource, WeightType, read_file};
use support::gguf::{Meta, Writer};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny-llama.gguf")
}

/// Opens bytes as a file.
fn open(bytes: &[u8]) -> Result<GgufWeights, WeightError> {
    let folder = tempfile::tempdir().expect("can make a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("can write");
    GgufWeights::open(&path, read_file)
}

fn error_of(bytes: &[u8]) -> String {
    open(bytes).err().expect("must be refused").to_string()
}

fn values(weights: &GgufWeights, name: &str, shape: &[usize]) -> Vec<f32> {
    let view = weights.tensor(name, shape).unwrap_or_else(|error| panic!("{error}"));
    let mut values = vec![0.0; shape.iter().product()];
    dequantise(view.kind).expect("is a weight type")(&view.bytes, &mut values);
    values
}

#[test]
fn the_configuration_is_complete() {
    let config = read_config(&fixture(), LoadFormat::Auto, read_file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((&config.family, config.layers, config.hidden, config.heads), (&Family::Llama, 2, 32, 4));
    let attention = Attention::Grouped {
        key_value_heads: 2,
        head_dimension: 8,
        query_key_norm: false,
        bias: false,
        output_bias: false,
    };
    assert_eq!(config.attention, attention);
    assert_eq!((config.vocabulary, config.context, config.intermediate), (269, 128, 256));
    assert_eq!((config.rope.theta, config.rope.dimension, config.rope.interleaved), (100_000.0, 8, false));
    assert!((config.norm_epsilon - 1e-5).abs() < 1e-12 && config.tied_embeddings);
    assert_eq!((config.bos_token, config.eos_tokens.as_slice()), (Some(1), &[2, 0][..]));
    assert_eq!(config.layer_kinds, [LayerKind::Dense; 2]);
    let quantization = config.quantization.expect("has block formats");
    assert_eq!((quantization.method.as_str(), quantization.weight_bits), ("gguf", 8));
    assert_eq!(config.unserved, Vec::<String>::new());
}

#[test]
fn query_and_key_rows_are_in_hugging_face_order() {
    let weights = GgufWeights::open(&fixture(), read_file).unwrap_or_else(|error| panic!("{error}"));
    for layer in 0..2 {
        for (part, rows) in [("q_proj", 32), ("k_proj", 16)] {
            let name = format!("model.layers.{layer}.self_attn.{part}.weight");
            for (row, values) in values(&weights, &name, &[rows, 32]).chunks_exact(32).enumerate() {
                assert!(values.iter().all(|value| (value - row as f32).abs() < 0.02), "{name} row {row}: {values:?}");
            }
        }
    }
}

#[test]
fn types_are_those_of_the_file() {
    let weights = GgufWeights::open(&fixture(), read_file).unwrap_or_else(|error| panic!("{error}"));
    let cases = [
        ("model.embed_tokens.weight", vec![269, 32], WeightType::Q8_0),
        ("model.norm.weight", vec![32], WeightType::F32),
        ("model.layers.0.mlp.gate_proj.weight", vec![256, 32], WeightType::Q4_0),
        ("model.layers.1.mlp.up_proj.weight", vec![256, 32], WeightType::Q4_1),
        ("model.layers.0.mlp.down_proj.weight", vec![32, 256], WeightType::Q4K),
        ("model.layers.1.mlp.down_proj.weight", vec![32, 256], WeightType::Q6K),
        ("model.layers.1.self_attn.v_proj.weight", vec![16, 32], WeightType::F16),
        ("model.layers.1.self_attn.o_proj.weight", vec![32, 32], WeightType::Q5_0),
    ];
    for (name, shape, kind) in cases {
        let info = weights.info(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((info.kind, info.shape), (kind, shape), "{name}");
    }
    assert_eq!(weights.names().len(), 2 + 2 * 9);
    let error = weights.tensor("model.layers.2.mlp.gate_proj.weight", &[1]).expect_err("has two layers").to_string();
    assert!(
        error.contains("the file has model.layers.0.mlp.gate_proj.weight, model.layers.1.mlp.gate_proj.weight"),
        "{error}"
    );
}

#[test]
fn stacked_experts_are_taken_apart() {
    let data: Vec<u8> = (0..3 * 2 * 4).flat_map(|number| (number as f32).to_le_bytes()).collect();
    let mut writer = Writer::new();
    writer.meta("general.architecture", Meta::Text("qwen3moe"));
    writer.tensor("blk.5.ffn_up_exps.weight", &[4, 2, 3], 0, &data);
    let weights = open(&writer.bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(weights.names().len(), 3);
    let second = values(&weights, "model.layers.5.mlp.experts.1.up_proj.weight", &[2, 4]);
    assert_eq!(second, [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
}

/// A small model of one architecture with these further entries.
fn model(architecture: &'static str, further: &[(&str, Meta)]) -> Writer {
    let mut writer = Writer::new();
    writer.meta("general.architecture", Meta::Text(architecture));
    let keys = [
        ("block_count", 2),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", 4),
        ("context_length", 64),
        ("vocab_size", 10),
    ];
    for (key, value) in keys {
        writer.meta(&format!("{architecture}.{key}"), Meta::U32(value));
    }
    for (key, value) in further {
        writer.meta(&format!("{architecture}.{key}"), value.clone());
    }
    writer
}

fn config_of(writer: &Writer) -> Result<engine::model::ModelConfig, engine::load::LoadError> {
    let folder = tempfile::tempdir().expect("can make a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, writer.bytes()).expect("can write");
    read_config(&path, LoadFormat::Auto, read_file)
}

#[test]
fn qwen_files_have_what_their_tensors_say() {
    let mut writer =
        model("qwen3", &[("attention.key_length", Meta::U32(16)), ("attention.head_count_kv", Meta::U32(2))]);
    writer.tensor("blk.0.attn_q_norm.weight", &[16], 0, &[0; 64]);
    writer.tensor("output.weight", &[32, 10], 0, &[0; 32 * 10 * 4]);
    let config = config_of(&writer).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(
        config.attention,
        Attention::Grouped { head_dimension: 16, query_key_norm: true, bias: false, .. }
    ));
    assert!(!config.tied_embeddings && config.quantization.is_none() && config.unserved.is_empty());
    let mut writer = model("qwen2", &[]);
    writer.tensor("blk.0.attn_q.bias", &[32], 0, &[0; 128]);
    let config = config_of(&writer).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(config.attention, Attention::Grouped { bias: true, output_bias: false, .. }));
}

#[test]
fn llama_3_divisors_are_recognised() {
    // transformers' `_compute_llama3_parameters` for theta 500000, head dimension 8, factor 8.
    let theta = 500_000.0_f64;
    let divisor = |pair: i32| {
        let wavelength = std::f64::consts::TAU * theta.powf(2.0 * f64::from(pair) / 8.0);
        if wavelength < 8192.0 / 4.0 {
            1.0
        } else if wavelength > 8192.0 {
            8.0
        } else {
            let smooth = (8192.0 / wavelength - 1.0) / 3.0;
            1.0 / ((1.0 - smooth) / 8.0 + smooth)
        }
    };
    let bytes: Vec<u8> = (0..4).flat_map(|pair| (divisor(pair) as f32).to_le_bytes()).collect();
    let mut writer = model("llama", &[("rope.freq_base", Meta::F32(500_000.0))]);
    writer.tensor("rope_freqs.weight", &[4], 0, &bytes);
    let config = config_of(&writer).unwrap_or_else(|error| panic!("{error}"));
    let (factor, low_frequency_factor, high_frequency_factor, original_context) = (8.0, 1.0, 4.0, 8192);
    let expected = RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context };
    assert_eq!(config.rope.scaling, expected);
    let mut writer = model("llama", &[("rope.freq_base", Meta::F32(500_000.0))]);
    writer.tensor("rope_freqs.weight", &[4], 0, &[2.0_f32, 1.0, 5.0, 8.0].map(f32::to_le_bytes).concat());
    let config = config_of(&writer).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.unserved.iter().any(|sentence| sentence.contains("rope_freqs.weight")), "{:?}", config.unserved);
}

#[test]
fn other_architectures_have_a_shape() {
    let keys = [
        ("attention.kv_lora_rank", Meta::U32(16)),
        ("attention.q_lora_rank", Meta::U32(24)),
        ("attention.key_length", Meta::U32(24)),
        ("attention.value_length", Meta::U32(16)),
        ("rope.dimension_count", Meta::U32(8)),
        ("expert_count", Meta::U32(8)),
        ("expert_used_count", Meta::U32(2)),
        ("expert_gating_func", Meta::U32(2)),
        ("leading_dense_block_count", Meta::U32(1)),
    ];
    let config = config_of(&model("deepseek2", &keys)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.family, config.unserved.len()), (Family::Other("deepseek2".to_owned()), 1));
    assert_eq!(config.layer_kinds, [LayerKind::Dense, LayerKind::Moe]);
    let Attention::Latent(latent) = config.attention else { panic!("{:?}", config.attention) };
    assert_eq!((latent.nope_head_dimension, latent.rope_head_dimension, latent.value_head_dimension), (16, 8, 16));
    let config = config_of(&model("llama", &[("expert_count", Meta::U32(8)), ("expert_used_count", Meta::U32(2))]));
    assert!(matches!(config.map(|config| config.family), Ok(Family::Other(_))));
}

#[test]
fn wrong_metadata_is_named() {
    let cases = [
        (
            model("llama", &[("attention.head_count_kv", Meta::U32(3))]),
            "key `llama.attention.head_count_kv` is 3, which does not divide",
        ),
        (
            model("llama", &[("rope.freq_base", Meta::F32(f32::NAN))]),
            "key `llama.rope.freq_base` is \"NaN\", but must be a number",
        ),
        (model("llama", &[("rope.scaling.type", Meta::Text("linear"))]), "key `llama.rope.scaling.factor` is missing"),
        (
            model("llama", &[("rope.dimension_count", Meta::U32(9))]),
            "key `llama.rope.dimension_count` is 9, but must be even and at most 8",
        ),
        (model("llama", &[("attention.value_length", Meta::U32(4))]), "key `llama.attention.value_length` is 4"),
        (model("qwen3moe", &[]), "key `qwen3moe.expert_count` is missing"),
        (Writer::new(), "key `general.architecture` is missing"),
    ];
    for (writer, message) in cases {
        let error = config_of(&writer).expect_err("must be refused").to_string();
        assert!(error.contains("model.gguf: ") && error.contains(message), "{error}");
    }
    let mut writer = model("llama", &[]);
    writer.tensor("token_embd.weight", &[32, 11], 0, &[0; 32 * 11 * 4]);
    let error = config_of(&writer).expect_err("must be refused").to_string();
    assert!(error.contains("key `llama.vocab_size` is 10, but `token_embd.weight` has 11 rows"), "{error}");
}

#[test]
fn truncation_is_said_wherever_it_happens() {
    let whole = std::fs::read(fixture()).expect("fixture exists");
    for length in (0..whole.len()).step_by(397).chain([whole.len() - 1]) {
        let error = error_of(&whole[..length]);
        assert!(error.contains("model.gguf: ") && (error.contains("offset") || length < 4), "{length}: {error}");
    }
}

#[test]
fn wrong_headers_are_said() {
    let head = |version: u32, tensors: u64, entries: u64| {
        [b"GGUF".as_slice(), &version.to_le_bytes(), &tensors.to_le_bytes(), &entries.to_le_bytes()].concat()
    };
    let cases = [
        (b"GGML\x03\0\0\0".to_vec(), "it is not a GGUF file"),
        (head(1, 0, 0), "is GGUF version 1"),
        (head(4, 0, 0), "is GGUF version 4; versions 2 and 3 can be read"),
        (head(3_u32.swap_bytes(), 0, 0), "is a big-endian GGUF file"),
        (
            head(3, u64::MAX, 0),
            "the number of tensors at offset 8 is 18446744073709551615, but the 8 bytes left hold 0",
        ),
        (
            head(3, 0, 1 << 40),
            "the number of metadata entries at offset 16 is 1099511627776, but the 0 bytes left hold 0",
        ),
    ];
    for (bytes, message) in cases {
        let error = error_of(&bytes);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn wrong_values_are_said() {
    let mut huge = Writer::new();
    huge.raw_meta("x", &[&9_u32.to_le_bytes()[..], &8_u32.to_le_bytes(), &(1_u64 << 60).to_le_bytes()].concat());
    let mut nested = Writer::new();
    let level = [9_u32.to_le_bytes().as_slice(), &1_u64.to_le_bytes()].concat();
    nested.raw_meta("x", &[&9_u32.to_le_bytes()[..], &level.repeat(9), &[0; 64]].concat());
    let mut unknown = Writer::new();
    unknown.raw_meta("x", &13_u32.to_le_bytes());
    let mut truth = Writer::new();
    truth.raw_meta("x", &[&7_u32.to_le_bytes()[..], &[2]].concat());
    let mut twice = Writer::new();
    twice.meta("x", Meta::U32(1));
    twice.meta("x", Meta::U32(1));
    let mut text = Writer::new();
    text.raw_meta("general.name", &[&8_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &[0xff, 0xfe]].concat());
    let mut alignment = Writer::new();
    alignment.meta("general.alignment", Meta::U32(24));
    let mut split = Writer::new();
    split.meta("split.count", Meta::U32(3));
    let cases = [
        (huge, "metadata key `x` at offset 41 is 1152921504606846976, but the 0 bytes left hold 0 at most"),
        (nested, "metadata key `x` nests arrays deeper than 3"),
        (unknown, "metadata key `x` at offset 33 has the unknown value type 13"),
        (truth, "metadata key `x` at offset 37 is 2, but a truth value is 0 or 1"),
        (twice, "metadata key `x` is listed twice"),
        (text, "metadata key `general.name` at offset 48 is not UTF-8"),
        (alignment, "metadata key `general.alignment` is 24, but must be a power of two"),
        (split, "is one of 3 parts of a split file"),
    ];
    for (writer, message) in cases {
        let error = error_of(&writer.bytes());
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn wrong_tensors_are_said() {
    let one = |name: &str, dimensions: &[u64], kind: u32, data: &[u8]| {
        let mut writer = Writer::new();
        writer.tensor(name, dimensions, kind, data);
        writer
    };
    let mut overlap = Writer::new();
    overlap.tensor("a", &[8], 0, &[0; 32]);
    overlap.tensor_at("b", &[8], 0, 0);
    let mut twice = one("a", &[8], 0, &[0; 32]);
    twice.tensor("a", &[8], 0, &[0; 32]);
    let mut unaligned = one("a", &[8], 0, &[0; 64]);
    unaligned.tensor_at("b", &[4], 0, 33);
    let mut outside = one("a", &[8], 0, &[0; 32]);
    outside.tensor_at("b", &[8], 0, 1 << 62);
    let mut collision = one("model.norm.weight", &[1], 0, &[0; 4]);
    collision.tensor("output_norm.weight", &[1], 0, &[0; 4]);
    let mut heads = model("llama", &[]);
    heads.tensor("blk.0.attn_q.weight", &[32, 12], 0, &[0; 32 * 12 * 4]);
    let cases = [
        (one("a", &[8], 99, &[0; 32]), "tensor `a` has the unknown type number 99"),
        (one("a", &[8], 2, &[0; 32]), "tensor `a` has shape [8], which is not a whole number of Q4_0 blocks"),
        (one("a", &[1 << 40, 1 << 40], 0, &[0; 32]), "which is not a whole number of F32 blocks or overflows"),
        (one("a", &[1 << 30], 0, &[0; 32]), "tensor `a` takes 4294967296 bytes from data offset 0"),
        (one("a", &[0], 0, &[0; 32]), "tensor `a` has a dimension of 0"),
        (one("a", &[1, 1, 1, 1, 1], 0, &[0; 4]), "has 5 dimensions; 1 to 4 are possible"),
        (one("a", &[], 0, &[0; 4]), "has 0 dimensions; 1 to 4 are possible"),
        (one("blk.0.ffn_up_exps.weight", &[8], 0, &[0; 32]), "but must stack up to 65536 experts"),
        (overlap, "tensors `a` ("),
        (twice, "tensor `a` is listed twice"),
        (unaligned, "tensor `b` has the offset 33, which is not a multiple of the alignment 32"),
        (outside, "tensor `b` takes 32 bytes from data offset 4611686018427387904"),
        (collision, "tensor `output_norm.weight` stands for a name that another tensor has"),
        (heads, "tensor `model.layers.0.self_attn.q_proj.weight` has 12 rows"),
    ];
    for (writer, message) in cases {
        let error = error_of(&writer.bytes());
        assert!(error.contains(message), "{error}");
    }
    let weights = open(&one("a", &[256], 10, &[0; 84]).bytes()).unwrap_or_else(|error| panic!("{error}"));
    let error = weights.tensor("a", &[256]).expect_err("cannot be read").to_string();
    assert!(error.contains("tensor `a` has type Q2_K, which cannot be read"), "{error}");
}

#[test]
fn places_are_told_apart() {
    let folder = tempfile::tempdir().expect("can make a folder");
    let error = |path: &Path, format: LoadFormat| {
        let options = OpenOptions { format, ..OpenOptions::default() };
        open_model(path, &options).err().expect("must be refused").to_string()
    };
    assert!(error(folder.path(), LoadFormat::Auto).contains("has no config.json and no .gguf file"));
    assert!(error(&folder.path().join("gone"), LoadFormat::Auto).contains("does not exist"));
    assert!(error(&fixture(), LoadFormat::Safetensors).contains("is a GGUF file, but the load format is safetensors"));
    std::fs::copy(fixture(), folder.path().join("one.gguf")).expect("can copy");
    assert_eq!(open_model(folder.path(), &OpenOptions::default()).map(|model| model.config.layers).ok(), Some(2));
    std::fs::copy(fixture(), folder.path().join("two.gguf")).expect("can copy");
    assert!(error(folder.path(), LoadFormat::Auto).contains("has 2 GGUF files; name the one to load"));
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/llama-tiny.json");
    assert!(error(&config, LoadFormat::Auto).contains("is a configuration without weights"));
}
