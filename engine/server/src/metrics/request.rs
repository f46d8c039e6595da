//! Metrics that follow single requests.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// Labels of `vllm:request_success_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Finish {
    pub finished_reason: &'static str,
}

/// Counters and histograms, updated on the engine's thread.
#[derive(Debug)]
pub struct RequestMetrics {
    pub prompt_tokens: Counter,
    pub cached_prompt_tokens: Counter,
    pub generation_tokens: Counter,
    pub finished: Family<Finish, Counter>,
    pub first_token: Histogram,
    pub between_tokens: Histogram,
    pub per_output_token: Histogram,
    pub whole: Histogram,
    pub decode: Histogram,
    pub prompt_length: Histogram,
    pub output_length: Histogram,
}

/// Bucket bounds in seconds: vLLM's.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
/// In tokens.
const LENGTH: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0,
    200000.0,
];

impl RequestMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            prompt_tokens: Counter::default(),
            cached_prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            finished: Family::default(),
            first_token: histogram(FIRST_TOKEN),
            between_tokens: histogram(PER_TOKEN),
            per_output_token: histogram(PER_TOKEN),
            whole: histogram(WHOLE),
            decode: histogram(WHOLE),
            prompt_length: histogram(LENGTH),
            output_length: histogram(LENGTH),
        };
        let mut add = |name: &str, help: &str, metric: &dyn Register| metric.register(registry, name, help);
        add("vllm:prompt_tokens", "Prompt tokens of finished requests", &metrics.prompt_tokens);
        add("vllm:prompt_tokens_cached", "Prompt tokens from the prefix cache", &metrics.cached_prompt_tokens);
        add("vllm:generation_tokens", "Tokens generated", &metrics.generation_tokens);
        add("vllm:request_success", "Outputs that ended, by reason", &metrics.finished);
        add("vllm:time_to_first_token_seconds", "Submission to first token", &metrics.first_token);
        add("vllm:inter_token_latency_seconds", "Time between tokens", &metrics.between_tokens);
        let name = "vllm:request_time_per_output_token_seconds";
        add(name, "Mean time per token after the first one, of an output", &metrics.per_output_token);
        add("vllm:e2e_request_latency_seconds", "Submission to end of an output", &metrics.whole);
        add("vllm:request_decode_time_seconds", "First token to end of an output", &metrics.decode);
        add("vllm:request_prompt_tokens", "Prompt length in tokens", &metrics.prompt_length);
        add("vllm:request_generation_tokens", "Output length in tokens", &metrics.output_length);
        metrics
    }
}

fn histogram(bounds: &[f64]) -> Histogram {
    Histogram::new(bounds.iter().copied())
}

/// A metric whose clones share their value, as all of this crate's do.
trait Register {
    fn register(&self, registry: &mut Registry, name: &str, help: &str);
}

impl<M: Metric + Clone> Register for M {
    fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.clone());
    }
}
