//! `config.json` of real and of damaged checkpoints.

use std::path::Path;

use engine::load::parse_config;
use engine::model::{Attention, Family, LatentAttention, LayerKind, ModelConfig, RopeScaling, RouterScore};
use serde_json::{Value, json};

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(name: &str) -> ModelConfig {
    parse_config(name, &text(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// The error for a configuration with some keys replaced; `null` removes.
fn error_with(name: &str, changes: Value) -> String {
    let mut config: Value = serde_json::from_str(&text(name)).expect("fixture is JSON");
    for (key, value) in changes.as_object().expect("changes are an object") {
        config[key] = value.clone();
    }
    parse_config("folder/config.json", &config.to_string()).expect_err("must be refused").to_string()
}

fn grouped(
    key_value_heads: usize,
    head_dimension: usize,
    query_key_norm: bool,
    bias: bool,
    output_bias: bool,
) -> Attention {
    Attention::Grouped { key_value_heads, head_dimension, query_key_norm, bias, output_bias }
}

#[test]
fn llama() {
    let config = read("llama-tiny");
    assert_eq!(config.family, Family::Llama);
    assert_eq!(config.architecture, "LlamaForCausalLM");
    assert_eq!((config.layers, config.hidden, config.heads, config.intermediate), (8, 64, 4, 128));
    assert_eq!((config.vocabulary, config.context), (512, 512));
    assert_eq!(config.attention, grouped(2, 16, false, false, false));
    assert_eq!((config.norm_epsilon, config.rope.theta, config.rope.dimension), (1e-5, 10_000.0, 16));
    assert!(!config.rope.interleaved && !config.tied_embeddings);
    assert_eq!((config.bos_token, config.eos_tokens.as_slice(), config.dtype.as_str()), (Some(1), &[2][..], "float32"));
    assert_eq!((config.moe, config.layer_kinds), (None, vec![LayerKind::Dense; 8]));
    assert_eq!(config.unserved, Vec::<String>::new());
}

#[test]
fn llama_3_scaling() {
    let config = read("llama-3.1-8b");
    let (factor, low_frequency_factor, high_frequency_factor, original_context) = (8.0, 1.0, 4.0, 8192);
    let scaling = RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original_context };
    assert_eq!(config.rope.scaling, scaling);
    assert_eq!(config.attention, grouped(8, 128, false, false, false));
    assert_eq!(config.eos_tokens, [128_001, 128_008, 128_009]);
    assert_eq!(config.dtype, "bfloat16");
    assert!(config.unserved.is_empty());
}

#[test]
fn a_sliding_window_ends_the_context() {
    let config = read("mistral-7b");
    assert_eq!((config.family, config.context), (Family::Llama, 4096));
    assert!(config.unserved.is_empty());
}

#[test]
fn qwen() {
    let config = read("qwen2-tiny");
    assert_eq!(config.attention, grouped(2, 16, false, true, false));
    assert!(config.tied_embeddings && config.unserved.is_empty());
    let config = read("qwen3-tiny");
    assert_eq!((config.family, config.attention), (Family::Qwen3, grouped(2, 32, true, false, false)));
    let config = read("qwen3-moe-tiny");
    let moe = config.moe.expect("is a mixture");
    assert_eq!((moe.experts, moe.experts_per_token, moe.intermediate, moe.shared_experts), (8, 2, 32, 0));
    assert_eq!((moe.score, moe.correction_bias, moe.normalise, moe.scaling), (RouterScore::Softmax, false, true, 1.0));
    assert_eq!(config.layer_kinds, [LayerKind::Moe; 2]);
    assert!(config.unserved.is_empty());
}

#[test]
fn deepseek() {
    let config = read("deepseek-v3-tiny");
    let latent = LatentAttention {
        query_lora_rank: Some(48),
        key_value_lora_rank: 32,
        nope_head_dimension: 16,
        rope_head_dimension: 8,
        value_head_dimension: 16,
    };
    assert_eq!((config.family, config.attention), (Family::DeepseekV3, Attention::Latent(latent)));
    assert!(config.rope.interleaved);
    assert_eq!(config.rope.dimension, 8);
    let RopeScaling::Yarn { factor, original_context, mscale, mscale_all_dim, .. } = config.rope.scaling else {
        panic!("{:?}", config.rope.scaling)
    };
    assert_eq!((factor, original_context, mscale, mscale_all_dim), (4.0, 64, 1.0, 1.0));
    let moe = config.moe.expect("is a mixture");
    assert_eq!((moe.groups, moe.top_groups, moe.shared_experts, moe.shared_intermediate), (4, 2, 1, 32));
    assert_eq!((moe.score, moe.correction_bias, moe.normalise, moe.scaling), (RouterScore::Sigmoid, true, true, 2.5));
    assert_eq!(config.layer_kinds, [LayerKind::Dense, LayerKind::Moe, LayerKind::Moe]);
    assert!(config.unserved.is_empty());
}

#[test]
fn kimi_nests_its_language_model() {
    let config = read("kimi-k2.5");
    assert_eq!((config.family, config.architecture.as_str()), (Family::DeepseekV3, "KimiK25ForConditionalGeneration"));
    assert_eq!((config.layers, config.hidden, config.heads, config.context), (61, 7168, 64, 262_144));
    let moe = config.moe.expect("is a mixture");
    assert_eq!((moe.experts, moe.experts_per_token, moe.intermediate), (384, 8, 2048));
    let quantization = config.quantization.expect("is quantised");
    assert_eq!(
        (quantization.method.as_str(), quantization.weight_bits, quantization.group),
        ("compressed-tensors", 4, Some(32))
    );
    assert_eq!(quantization.ignored.len(), 4);
    assert_eq!(
        (config.bos_token, config.eos_tokens, config.dtype.as_str()),
        (Some(163_584), vec![163_585], "bfloat16")
    );
    assert_eq!(config.unserved.len(), 1, "{:?}", config.unserved);
    assert!(config.unserved[0].contains("text_config.quantization_config.quant_method"));
}

#[test]
fn other_families_have_a_shape() {
    let config = read("glm4-moe-tiny");
    assert_eq!(config.attention, grouped(2, 32, true, true, false));
    assert_eq!((config.rope.dimension, config.layer_kinds[0]), (16, LayerKind::Dense));
    let config = read("glm-moe-dsa-tiny");
    assert!(matches!(config.attention, Attention::Latent(_)));
    assert_eq!(config.layer_kinds, [LayerKind::Dense, LayerKind::Moe, LayerKind::Moe]);
    let config = read("mixtral-8x7b");
    let moe = config.moe.expect("is a mixture");
    assert_eq!((moe.experts, moe.experts_per_token, moe.intermediate, moe.normalise), (8, 2, 14336, true));
    let config = read("gpt-oss-120b");
    assert_eq!((config.attention, config.context), (grouped(8, 64, false, true, true), 131_072));
    assert!(matches!(config.rope.scaling, RopeScaling::Yarn { truncate: false, mscale: 0.0, .. }));
    assert_eq!(config.quantization.map(|quantization| quantization.weight_bits), Some(4));
    for name in ["glm4-moe-tiny", "glm-moe-dsa-tiny", "mixtral-8x7b", "gpt-oss-120b"] {
        let config = read(name);
        assert!(matches!(config.family, Family::Other(_)) && !config.unserved.is_empty(), "{name}");
    }
}

#[test]
fn transformers_5_keys_mean_the_same() {
    let old = read("llama-3.1-8b");
    let mut config: Value = serde_json::from_str(&text("llama-3.1-8b")).expect("fixture is JSON");
    let mut rope = config["rope_scaling"].take();
    rope["rope_theta"] = config["rope_theta"].take();
    config["rope_parameters"] = rope;
    config["dtype"] = config["torch_dtype"].take();
    assert_eq!(parse_config("new", &config.to_string()).expect("is valid"), old);
}

#[test]
fn wrong_keys_are_named() {
    let cases = [
        (json!({"hidden_size": null}), "key `hidden_size` is missing"),
        (json!({"model_type": null}), "key `model_type` is missing"),
        (json!({"hidden_size": "64"}), "key `hidden_size` is \"64\", but must be a whole number from 1 to"),
        (json!({"num_hidden_layers": 1_000_000_000_000_u64}), "key `num_hidden_layers` is 1000000000000, but must be"),
        (json!({"num_hidden_layers": -1}), "key `num_hidden_layers` is -1, but must be"),
        (json!({"num_key_value_heads": 3}), "key `num_key_value_heads` is 3, which does not divide"),
        (
            json!({"head_dim": null, "hidden_size": 66}),
            "key `head_dim` is missing, and `hidden_size`, 66, is not a multiple",
        ),
        (json!({"head_dim": 15}), "key `head_dim` is 15; rotary embedding needs an even number"),
        (json!({"eos_token_id": 512}), "key `eos_token_id` names token 512, but the vocabulary has 512 tokens"),
        (
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 8}}),
            "key `rope_scaling.low_freq_factor` is missing",
        ),
        (json!({"rope_scaling": 4}), "key `rope_scaling` is 4, but must be an object"),
        (json!({"rms_norm_eps": 0}), "key `rms_norm_eps` is 0, but must be above zero"),
        (json!({"layer_types": ["full_attention"]}), "key `layer_types` has 1 entries, but `num_hidden_layers` is 8"),
        (json!({"torch_dtype": "int3", "dtype": null}), "key `torch_dtype` is \"int3\", but must be one of"),
        (
            json!({"quantization_config": {"quant_method": "magic"}}),
            "key `quantization_config.quant_method` is \"magic\"; known",
        ),
        (json!({"tie_word_embeddings": "no"}), "key `tie_word_embeddings` is \"no\", but must be true or false"),
    ];
    for (changes, message) in cases {
        let error = error_with("llama-tiny", changes.clone());
        assert!(error.starts_with("folder/config.json: ") && error.contains(message), "{changes}: {error}");
    }
}

#[test]
fn contradicting_expert_keys_are_named() {
    let cases = [
        (json!({"n_routed_experts": null}), "key `n_routed_experts` is missing"),
        (json!({"num_experts_per_tok": 9}), "key `num_experts_per_tok` is 9, but there are 8 experts"),
        (json!({"n_group": 3}), "key `n_group` is 3, which does not divide the 8 experts"),
        (json!({"topk_group": 5}), "key `topk_group` is 5, but `n_group` is 4"),
        (json!({"num_experts": 16}), "key `num_experts` is 16, but `n_routed_experts` is 8"),
        (json!({"qk_head_dim": 32}), "key `qk_head_dim` is 32, but `qk_nope_head_dim` + `qk_rope_head_dim` is 24"),
        (json!({"kv_lora_rank": null}), "key `kv_lora_rank` is missing"),
        (json!({"mlp_layer_types": ["sparse", "sparse", "sparse"]}), "key `mlp_layer_types` contradicts"),
        (json!({"scoring_func": "tanh"}), "key `scoring_func` is \"tanh\""),
    ];
    for (changes, message) in cases {
        let error = error_with("deepseek-v3-tiny", changes.clone());
        assert!(error.contains(message), "{changes}: {error}");
    }
}

#[test]
fn what_no_forward_pass_does_is_said() {
    let cases = [
        (json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}}), "rotary scaling is \"dynamic\""),
        (json!({"hidden_act": "relu2"}), "`hidden_act` is \"relu2\""),
        (
            json!({"architectures": ["LlamaForSequenceClassification"]}),
            "`architectures` is \"LlamaForSequenceClassification\"",
        ),
        (json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}), "is \"awq\""),
    ];
    for (changes, message) in cases {
        let mut config: Value = serde_json::from_str(&text("llama-tiny")).expect("fixture is JSON");
        for (key, value) in changes.as_object().expect("changes are an object") {
            config[key] = value.clone();
        }
        let config = parse_config("config.json", &config.to_string()).expect("has a shape");
        assert!(config.unserved.iter().any(|sentence| sentence.contains(message)), "{changes}: {:?}", config.unserved);
    }
}

#[test]
fn no_json_is_said() {
    let error = parse_config("a/config.json", "{\"hidden_size\": ").expect_err("is cut").to_string();
    assert!(error.starts_with("a/config.json: is not valid JSON") && error.contains("line 1"), "{error}");
    let error = parse_config("a/config.json", "[]").expect_err("is a list").to_string();
    assert_eq!(error, "a/config.json: must hold a JSON object");
    let twice = text("llama-tiny").replacen('{', "{\"num_hidden_layers\": 2,", 1);
    let error = parse_config("a/config.json", &twice).expect_err("says two numbers of layers").to_string();
    assert!(error.contains("key `num_hidden_layers` appears twice"), "{error}");
}
