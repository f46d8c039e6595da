//! A model's shape, normalised from `config.json` or GGUF metadata: every default filled in, every name one of ours.

/// Families that the engine serves. A family that can only be planned is `Other`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Family {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    DeepseekV3,
    /// Known shape, no forward pass: `archway plan` works, `serve` refuses. Holds the `model_type`.
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    Silu,
    Gelu,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    pub theta: f64,
    pub scaling: RopeScaling,
    /// Pairs are (2i, 2i+1) instead of (i, i + dim/2).
    pub interleaved: bool,
    /// Rotated dimensions of each head; equals the head dimension unless partial.
    pub dimension: usize,
}

/// Formulas: Hugging Face transformers, `modeling_rope_utils.py`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low_frequency_factor: f64,
        high_frequency_factor: f64,
        original_context: usize,
    },
    Yarn {
        factor: f64,
        original_context: usize,
        beta_fast: f64,
        beta_slow: f64,
        /// 0 means absent, here and for `mscale_all_dim`.
        mscale: f64,
        mscale_all_dim: f64,
        attention_factor: Option<f64>,
        truncate: bool,
    },
}

/// Multi-head latent attention (DeepSeek V2/V3, Kimi K2).
#[derive(Clone, Debug, PartialEq)]
pub struct LatentAttention {
    pub query_lora_rank: Option<usize>,
    pub key_value_lora_rank: usize,
    pub nope_head_dimension: usize,
    pub rope_head_dimension: usize,
    pub value_head_dimension: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Attention {
    /// Multi-head, grouped-query or multi-query attention.
    Grouped {
        key_value_heads: usize,
        head_dimension: usize,
        query_key_norm: bool,
        bias: bool,
        output_bias: bool,
    },
    Latent(LatentAttention),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScore {
    Softmax,
    Sigmoid,
}

/// Mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeConfig {
    pub experts: usize,
    pub experts_per_token: usize,
    pub intermediate: usize,
    pub shared_experts: usize,
    /// Intermediate size of one shared expert.
    pub shared_intermediate: usize,
    pub score: RouterScore,
    /// Adds `e_score_correction_bias` for the selection only.
    pub correction_bias: bool,
    pub groups: usize,
    pub top_groups: usize,
    pub normalise: bool,
    pub scaling: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    Dense,
    Moe,
}

/// How the checkpoint's weights are compressed, from `quantization_config`; for memory planning and display.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizationConfig {
    /// "fp8", "compressed-tensors", "gguf", ...
    pub method: String,
    /// Bits of one weight of a compressed module, scales not counted.
    pub weight_bits: usize,
    /// Weights that share one scale along the input dimension, where the checkpoint says so.
    pub group: Option<usize>,
    /// Modules that keep the plain data type, as the checkpoint writes them (names or `re:` patterns).
    pub ignored: Vec<String>,
}

/// The normalised shape of a decoder-only model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub family: Family,
    /// The `architectures[0]` or GGUF `general.architecture` string, for display.
    pub architecture: String,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub attention: Attention,
    pub intermediate: usize,
    pub vocabulary: usize,
    /// Longest sequence the model was made for.
    pub context: usize,
    pub norm_epsilon: f64,
    pub rope: RopeConfig,
    pub activation: Activation,
    pub mlp_bias: bool,
    pub tied_embeddings: bool,
    pub moe: Option<MoeConfig>,
    /// One per layer.
    pub layer_kinds: Vec<LayerKind>,
    /// Data type the checkpoint names, for display and memory planning ("bfloat16").
    pub dtype: String,
    pub quantization: Option<QuantizationConfig>,
    pub bos_token: Option<u32>,
    pub eos_tokens: Vec<u32>,
    /// What the configuration asks for and no forward pass of ours does, one sentence each with key and value. The
    /// model can be planned; serving it would give wrong answers, so `serve` refuses unless this is empty.
    pub unserved: Vec<String>,
}
