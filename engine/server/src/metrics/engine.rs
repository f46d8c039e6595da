//! Metrics read from the engine and the plan at each scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::engine::runner::EngineStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::admission::Admission;
use crate::service::Service;

/// Reads the engine's counters, and those of the server around it, whenever Prometheus asks.
pub struct EngineCollector {
    service: Arc<Service>,
    admission: Arc<Admission>,
    log_lines_lost: Arc<AtomicU64>,
}

impl EngineCollector {
    pub fn new(service: Arc<Service>, admission: Arc<Admission>, log_lines_lost: Arc<AtomicU64>) -> Self {
        Self { service, admission, log_lines_lost }
    }

    fn levels(&self, encoder: &mut DescriptorEncoder, stats: &EngineStats) -> fmt::Result {
        let mut add = |name, help, value| {
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        add("vllm:num_requests_running", "Sequences in the running batch", f64::from(stats.running))?;
        add("vllm:num_requests_waiting", "Sequences that wait for a place", f64::from(stats.waiting))?;
        add("vllm:kv_cache_usage_perc", "Share of key-value pages in use, 1 is all", stats.cache_usage())
    }

    fn counters(&self, encoder: &mut DescriptorEncoder, stats: &EngineStats) -> fmt::Result {
        let mut add = |name, help, value| {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        add("vllm:prompt_tokens", "Prompt tokens of admitted sequences", stats.prompt_tokens)?;
        add("vllm:prompt_tokens_cached", "Prompt tokens from the prefix cache", stats.prefix_hits)?;
        add("vllm:generation_tokens", "Tokens generated", stats.generation_tokens)?;
        add("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache", stats.prefix_queries)?;
        add("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache", stats.prefix_hits)?;
        add("vllm:num_preemptions", "Sequences that gave up their pages", stats.preemptions)?;
        add("vllm:spec_decode_num_drafts", "Speculative steps", stats.drafts)?;
        add("vllm:spec_decode_num_draft_tokens", "Tokens drafted", stats.drafted_tokens)?;
        add("vllm:spec_decode_num_accepted_tokens", "Drafted tokens accepted", stats.accepted_tokens)?;
        add("archway_engine_steps", "Steps of the engine", stats.steps)?;
        let following = stats.following_steps;
        add("archway_engine_steps_ahead", "Those submitted before the tokens of the step before were read", following)?;
        let failures = stats.integrity_failures;
        add("archway_prefix_cache_integrity_failures", "Cached pages that failed their check", failures)?;
        let lost = self.log_lines_lost.load(Ordering::Relaxed);
        add("archway_log_lines_lost", "Lines of the log that could not be written", lost)
    }

    /// Counters and levels that vLLM splits by a label.
    fn split(&self, encoder: &mut DescriptorEncoder, stats: &EngineStats) -> fmt::Result {
        let waiting = std::iter::once(([("reason", "capacity")], ConstGauge::new(i64::from(stats.waiting))));
        family(encoder, "vllm:num_requests_waiting_by_reason", "Sequences that wait, by reason", waiting)?;
        let cached = stats.prefix_hits;
        let sources = [("local_compute", stats.prompt_tokens.saturating_sub(cached)), ("local_cache_hit", cached)];
        let rows = sources.into_iter().map(|(source, count)| ([("source", source)], ConstCounter::new(count)));
        family(encoder, "vllm:prompt_tokens_by_source", "Prompt tokens computed, and taken from the cache", rows)?;
        let refused = [([("reason", "max_num_queued_reqs")], ConstCounter::new(self.admission.refused()))];
        family(encoder, "vllm:admission_rejections", "Requests refused by a full queue", refused.into_iter())?;
        let model = &self.service.model;
        let labels = [("block_size", model.page_size.to_string()), ("num_gpu_blocks", model.pages.to_string())];
        let row = std::iter::once((labels, ConstGauge::new(1_i64)));
        family(encoder, "vllm:cache_config_info", "Pages of the key-value cache", row)
    }

    fn endings(&self, encoder: &mut DescriptorEncoder, stats: &EngineStats) -> fmt::Result {
        let endings = [
            ("stop", stats.finished_stop),
            ("length", stats.finished_length),
            ("abort", stats.finished_abort),
            ("error", stats.failed),
        ];
        let rows = endings.into_iter().map(|(word, count)| ([("finished_reason", word)], ConstCounter::new(count)));
        family(encoder, "vllm:request_success", "Outputs that ended, by reason", rows)
    }

    fn collectives(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let calls = self.service.plan.collective_calls();
        let rows = calls.iter().map(|call| {
            let labels = [
                ("operation", call.operation.as_str()),
                ("site", call.site.as_str()),
                ("phase", call.phase.as_str()),
                ("algorithm", call.algorithm.as_str()),
                ("fusion", call.fusion.as_str()),
                ("size_bucket", call.size_bucket.as_str()),
            ];
            (labels, ConstCounter::new(call.calls))
        });
        family(encoder, "archway_collective_calls", "Collectives that ran, by the path they took", rows)
    }

    fn fallbacks(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let fallbacks = self.service.plan.fallbacks();
        let rows = fallbacks.iter().map(|fallback| {
            let labels = [
                ("operation", fallback.operation.as_str()),
                ("site", fallback.site.as_str()),
                ("phase", fallback.phase.as_str()),
                ("algorithm", fallback.algorithm.as_str()),
                ("reason", fallback.reason.as_str()),
            ];
            (labels, ConstGauge::new(1_i64))
        });
        family(encoder, "archway_plan_fallbacks", "Collectives for which the plan left its first choice", rows)
    }
}

/// Encodes one metric with a row for each set of labels.
fn family<M: EncodeMetric, const N: usize>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    mut rows: impl Iterator<Item = ([(&'static str, impl AsRef<str>); N], M)>,
) -> fmt::Result {
    let Some(first) = rows.next() else { return Ok(()) };
    let mut metric = encoder.encode_descriptor(name, help, None, first.1.metric_type())?;
    for (labels, value) in std::iter::once(first).chain(rows) {
        let labels = labels.map(|(name, value)| (name, value.as_ref().to_owned()));
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl fmt::Debug for EngineCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let stats = self.service.backend.stats();
        self.levels(&mut encoder, &stats)?;
        self.counters(&mut encoder, &stats)?;
        self.split(&mut encoder, &stats)?;
        self.endings(&mut encoder, &stats)?;
        self.collectives(&mut encoder)?;
        self.fallbacks(&mut encoder)
    }
}
