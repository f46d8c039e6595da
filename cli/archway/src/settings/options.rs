//! The keys: names of flags and of keys in the file, in vLLM's spelling, with SGLang's as aliases.

use anyhow::{Result, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::{Bytes, Count};
use super::speculative::SpeculativeConfig;
use super::words::{
    AllReduce, CpuPrecision, Device, Fusion, LoadFormat, LogLevel, NumberType, SchedulingPolicy, Speculative,
};

/// A flag that may stand alone, or be given true or false: `--strict`, `--strict=false`.
macro_rules! flag {
    () => {
        "[true|false]"
    };
}

/// Settings of `archway serve`. Every key is optional; a flag wins over the file, the file over the default.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Options {
    /// Model: a folder in Hugging Face layout, a .gguf file, or a config.json.
    #[arg(long, visible_alias = "model-path", value_name = "PATH", help_heading = "Model")]
    pub model: Option<String>,
    /// Tokenizer, if it is not beside the weights.
    #[arg(long, visible_alias = "tokenizer-path", value_name = "PATH", help_heading = "Model")]
    pub tokenizer: Option<String>,
    /// Names of the model in requests; answers give the first one. Default: the last part of the model's path.
    #[arg(long, num_args = 1.., value_name = "NAME", help_heading = "Model")]
    pub served_model_name: Option<Vec<String>>,
    /// Which weight files to read.
    #[arg(long, value_name = "FORMAT", help_heading = "Model")]
    pub load_format: Option<LoadFormat>,
    /// Number type of weights and activations.
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    pub dtype: Option<NumberType>,
    /// Longest sequence in tokens, prompt and output together. Default: the model's.
    #[arg(long, visible_alias = "context-length", value_name = "TOKENS", help_heading = "Model")]
    pub max_model_len: Option<Count>,
    /// Chat template: a file with a Jinja template. Default: the model's.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub chat_template: Option<String>,
    /// Seed of random weights.
    #[arg(long, visible_alias = "random-seed", value_name = "NUMBER", help_heading = "Model")]
    pub seed: Option<u64>,

    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", help_heading = "Server")]
    pub host: Option<String>,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, value_name = "PORT", help_heading = "Server")]
    pub port: Option<u16>,
    /// API keys; a client must present one of them.
    #[arg(long, num_args = 1.., value_name = "KEY", help_heading = "Server")]
    pub api_key: Option<Vec<String>>,
    /// Largest request body; a larger one gets 413. All bodies that are being read may have sixteen times as much together,
    /// then 503.
    #[arg(long, value_name = "SIZE", help_heading = "Server")]
    pub max_body_size: Option<Bytes>,
    /// Largest number of outputs for a prompt (`n`).
    #[arg(long, value_name = "COUNT", help_heading = "Server")]
    pub max_outputs: Option<u32>,
    /// Largest number of alternatives in log-probabilities.
    #[arg(long, value_name = "COUNT", help_heading = "Server")]
    pub max_logprobs: Option<u32>,
    /// Seconds that running requests get to finish after the signal to stop.
    #[arg(long, value_name = "SECONDS", help_heading = "Server")]
    pub shutdown_timeout: Option<u64>,
    /// Seconds of silence after which a stream sends a comment; 0 sends none.
    #[arg(long, value_name = "SECONDS", help_heading = "Server")]
    pub sse_keep_alive_interval: Option<u64>,
    /// Threads that serve connections. Default: the CPUs, at most 4.
    #[arg(long, value_name = "COUNT", help_heading = "Server")]
    pub http_threads: Option<u32>,
    /// Level of the log on standard error.
    #[arg(long, value_name = "LEVEL", help_heading = "Server")]
    pub log_level: Option<LogLevel>,

    /// Sequences that run at once.
    #[arg(long, visible_alias = "max-running-requests", value_name = "COUNT", help_heading = "Scheduler")]
    pub max_num_seqs: Option<u32>,
    /// Sequences that may wait; beyond that a request gets 429.
    #[arg(long, visible_alias = "max-queued-requests", value_name = "COUNT", help_heading = "Scheduler")]
    pub max_num_queued_reqs: Option<u32>,
    /// Tokens in one step: longer prompts are computed in chunks.
    #[arg(long, visible_aliases = ["chunked-prefill-size", "max-prefill-tokens"], value_name = "TOKENS", help_heading = "Scheduler")]
    pub max_num_batched_tokens: Option<Count>,
    /// Which waiting request goes first.
    #[arg(long, visible_alias = "schedule-policy", value_name = "POLICY", help_heading = "Scheduler")]
    pub scheduling_policy: Option<SchedulingPolicy>,
    /// Reuse the pages of equal prompt beginnings.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = flag!(), help_heading = "Scheduler")]
    pub enable_prefix_caching: Option<bool>,
    /// Memory of the key-value cache on each rank.
    #[arg(long, value_name = "SIZE", help_heading = "Scheduler")]
    pub kv_cache_memory_bytes: Option<Bytes>,
    /// Tokens that the key-value cache holds, instead of its memory.
    #[arg(long, value_name = "TOKENS", help_heading = "Scheduler")]
    pub max_total_tokens: Option<Count>,
    /// Share of memory that the engine may take: of a GPU, or of what the host has free where the CPU computes.
    #[arg(long, visible_alias = "mem-fraction-static", value_name = "SHARE", help_heading = "Scheduler")]
    #[schemars(range(min = 0.01, max = 1.0))]
    pub gpu_memory_utilization: Option<f64>,

    /// Device that computes.
    #[arg(long, value_name = "DEVICE", help_heading = "Plan")]
    pub device: Option<Device>,
    /// Pack of compiled kernels, made by `archway kernels build`: serves on hosts without NVRTC.
    #[arg(long, value_name = "PACK", help_heading = "Plan")]
    pub kernels: Option<String>,
    /// Threads of the CPU backend, over all ranks. Default: the CPUs.
    #[arg(long, value_name = "COUNT", help_heading = "Plan")]
    pub threads: Option<u32>,
    /// How the CPU backend multiplies weights in block formats.
    #[arg(long, value_name = "PRECISION", help_heading = "Plan")]
    pub cpu_precision: Option<CpuPrecision>,
    /// Seconds that one step may take; a rank that takes longer has stalled, and the engine stops.
    #[arg(long, value_name = "SECONDS", help_heading = "Plan")]
    pub step_timeout: Option<u64>,
    /// Ranks that share each layer.
    #[arg(long, visible_aliases = ["tp-size", "tp"], value_name = "RANKS", help_heading = "Plan")]
    pub tensor_parallel_size: Option<u32>,
    /// Algorithm of the all-reduce in decode, verify and draft steps.
    #[arg(long, value_name = "ALGORITHM", help_heading = "Plan")]
    pub allreduce: Option<AllReduce>,
    /// Algorithm of the all-reduce in prefill steps.
    #[arg(long, value_name = "ALGORITHM", help_heading = "Plan")]
    pub allreduce_prefill: Option<AllReduce>,
    /// Fusion of the all-reduce with residual and norm; `fused` binds decode, verify and draft steps.
    #[arg(long, value_name = "FUSION", help_heading = "Plan")]
    pub fusion: Option<Fusion>,
    /// Largest message of the chosen algorithm, instead of the database's limit.
    #[arg(long, value_name = "SIZE", help_heading = "Plan")]
    pub max_message: Option<Bytes>,
    /// Rely only on values that were measured or documented, not on inherited or guessed ones.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = flag!(), help_heading = "Plan")]
    pub strict: Option<bool>,
    /// Fall back to another path where the requested one is not possible, instead of refusing.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = flag!(), help_heading = "Plan")]
    pub allow_fallback: Option<bool>,
    /// Folder of the capability database. Default: the copy inside the program.
    #[arg(long, value_name = "FOLDER", help_heading = "Plan")]
    pub capdb: Option<String>,
    /// Tuning that `archway tune` wrote, laid over the database; `none` for no tuning. Default: what it wrote for this
    /// machine, if anything; `archway plan`, which asks no machine, takes none by itself.
    #[arg(long, value_name = "FILE", help_heading = "Plan")]
    pub tuning: Option<String>,

    /// How tokens are drafted ahead of the model.
    #[arg(long, visible_aliases = ["speculative", "spec-method"], value_name = "ALGORITHM", help_heading = "Speculation")]
    pub speculative_algorithm: Option<Speculative>,
    /// Folder of the draft model.
    #[arg(long, visible_alias = "spec-model", value_name = "FOLDER", help_heading = "Speculation")]
    pub speculative_draft_model_path: Option<String>,
    /// Tokens of a drafted chain, or levels of a drafted tree.
    #[arg(long, visible_alias = "spec-tokens", value_name = "COUNT", help_heading = "Speculation")]
    pub speculative_num_steps: Option<u32>,
    /// Branches of each node of a drafted tree; 1 drafts a chain.
    #[arg(long, value_name = "COUNT", help_heading = "Speculation")]
    pub speculative_eagle_topk: Option<u32>,
    /// Tokens that the model verifies in one pass, root included.
    #[arg(long, value_name = "COUNT", help_heading = "Speculation")]
    pub speculative_num_draft_tokens: Option<u32>,
    /// The same in vLLM's form: {"method": "eagle3", "model": FOLDER, "num_speculative_tokens": COUNT}.
    #[arg(long, value_name = "JSON", help_heading = "Speculation")]
    pub speculative_config: Option<SpeculativeConfig>,
    /// Residual-stream boundaries that the head reads, instead of those that its configuration names.
    #[arg(long, value_delimiter = ',', value_name = "B1,B2,B3", help_heading = "Speculation")]
    pub eagle3_taps: Option<Vec<u32>>,
    /// Draft fewer tokens, down to none, where measured times and acceptance say that drafting does not pay.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = flag!(), help_heading = "Speculation")]
    pub speculative_adaptive: Option<bool>,

    /// Serve a mock engine that repeats the prompt, to measure and test the HTTP front end.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = flag!(), help_heading = "Development")]
    pub mock_engine: Option<bool>,
    /// Milliseconds from token to token of the mock engine; 0 answers at once.
    #[arg(long, value_name = "MILLISECONDS", help_heading = "Development")]
    pub mock_interval: Option<u64>,
}

impl Options {
    /// The flags, with the model wherever it was given. Errors: two models.
    pub fn with_model(self, positional: Option<&str>) -> Result<Self> {
        match (positional, &self.model) {
            (Some(first), Some(second)) if first != second => {
                bail!("two models are given: {first}, and {second} by --model; give one")
            }
            (Some(model), _) => Ok(Self { model: Some(model.to_owned()), ..self }),
            (None, _) => Ok(self),
        }
    }
}
