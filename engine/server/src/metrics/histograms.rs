//! Histograms under vLLM's names, fed by the engine's observations.

use engine::runner::{Observation, Observer, Outcome, OutputTimes};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bucket bounds in seconds: vLLM's, and smaller ones, since small models on fast machines go below its first.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
];
const WHOLE: &[f64] = &[
    0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
/// In tokens.
const LENGTH: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0,
    200000.0,
];
const STEP: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// Tokens of a verify, the bonus included.
const ACCEPTED: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 16.0];

/// The engine's observer. Clones of a histogram share their buckets.
#[derive(Debug)]
pub struct Histograms {
    first_token: Histogram,
    between_tokens: Histogram,
    per_output_token: Histogram,
    whole: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    prompt_length: Histogram,
    output_length: Histogram,
    step_tokens: Histogram,
    tokens_per_verify: Histogram,
    accepted_per_position: Family<[(&'static str, String); 1], Counter>,
}

impl Default for Histograms {
    fn default() -> Self {
        let of = |bounds: &[f64]| Histogram::new(bounds.iter().copied());
        Self {
            first_token: of(FIRST_TOKEN),
            between_tokens: of(PER_TOKEN),
            per_output_token: of(PER_TOKEN),
            whole: of(WHOLE),
            queue: of(WHOLE),
            prefill: of(WHOLE),
            decode: of(WHOLE),
            inference: of(WHOLE),
            prompt_length: of(LENGTH),
            output_length: of(LENGTH),
            step_tokens: of(STEP),
            tokens_per_verify: of(ACCEPTED),
            accepted_per_position: Family::default(),
        }
    }
}

impl Histograms {
    pub fn register(&self, registry: &mut Registry) {
        let mut add = |name: &str, help: &str, metric: &Histogram| registry.register(name, help, metric.clone());
        add("vllm:time_to_first_token_seconds", "Submission to first token", &self.first_token);
        add("vllm:inter_token_latency_seconds", "Time between tokens", &self.between_tokens);
        let name = "vllm:request_time_per_output_token_seconds";
        add(name, "Mean time per token of an output after its first one", &self.per_output_token);
        add("vllm:e2e_request_latency_seconds", "Submission to end of an output", &self.whole);
        add("vllm:request_queue_time_seconds", "Submission to admission", &self.queue);
        add("vllm:request_prefill_time_seconds", "Admission to first token", &self.prefill);
        add("vllm:request_decode_time_seconds", "First token to last", &self.decode);
        add("vllm:request_inference_time_seconds", "Admission to last token", &self.inference);
        add("vllm:request_prompt_tokens", "Prompt length in tokens", &self.prompt_length);
        add("vllm:request_generation_tokens", "Output length in tokens", &self.output_length);
        add("vllm:iteration_tokens_total", "Tokens in a step", &self.step_tokens);
        let name = "archway_spec_decode_tokens_per_verify";
        add(name, "Tokens of a verify, the bonus included", &self.tokens_per_verify);
        let name = "vllm:spec_decode_num_accepted_tokens_per_pos";
        registry.register(name, "Drafted tokens accepted, by position", self.accepted_per_position.clone());
    }

    fn speculation(&self, accepted: u32) {
        self.tokens_per_verify.observe(f64::from(accepted + 1));
        for position in 0..accepted {
            self.accepted_per_position.get_or_create(&[("position", position.to_string())]).inc();
        }
    }

    fn output(&self, times: &OutputTimes) {
        if times.outcome == Outcome::Failed {
            return;
        }
        self.whole.observe(times.end_to_end);
        let known = [(&self.queue, times.queue), (&self.prefill, times.prefill), (&self.decode, times.decode)];
        for (histogram, seconds) in known.into_iter().filter_map(|(to, time)| time.map(|time| (to, time))) {
            histogram.observe(seconds);
        }
        if let (Some(prefill), Some(decode)) = (times.prefill, times.decode) {
            self.inference.observe(prefill + decode);
        }
        self.prompt_length.observe(f64::from(times.usage.prompt_tokens));
        self.output_length.observe(f64::from(times.usage.completion_tokens));
        if let (Some(decode), 2..) = (times.decode, times.usage.completion_tokens) {
            self.per_output_token.observe(decode / f64::from(times.usage.completion_tokens - 1));
        }
    }
}

impl Observer for Histograms {
    fn observe(&self, observation: &Observation) {
        match observation {
            Observation::Step { prefill_rows, decode_rows, .. } => {
                self.step_tokens.observe(f64::from(prefill_rows + decode_rows));
            }
            Observation::FirstToken { seconds } => self.first_token.observe(*seconds),
            Observation::InterToken { seconds, .. } => self.between_tokens.observe(*seconds),
            Observation::Output(times) => self.output(times),
            // Counted in the engine's statistics.
            Observation::Preemption => {}
            Observation::Speculation { accepted, .. } => self.speculation(*accepted),
        }
    }
}
