//! Watches one request's events as the engine sends them, so that a slow reader does not change what is measured.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use engine::types::{RequestEvent, SamplingParams};

use super::RequestMetrics;
use super::request::Finish;
use crate::generation::finish_word;

/// Feeds `RequestMetrics` from the events of one request.
pub struct Watch {
    metrics: Arc<RequestMetrics>,
    prompt_tokens: u64,
    start: Instant,
    outputs: RefCell<Vec<Progress>>,
}

/// One output: tokens so far, and when the first and the last of them came.
#[derive(Clone, Copy, Default)]
struct Progress {
    tokens: u64,
    times: Option<(Instant, Instant)>,
}

impl Watch {
    pub fn new(metrics: Arc<RequestMetrics>, prompt_tokens: usize, params: &SamplingParams) -> Self {
        let outputs = RefCell::new(vec![Progress::default(); params.n as usize]);
        Self { metrics, prompt_tokens: prompt_tokens as u64, start: Instant::now(), outputs }
    }

    pub fn see(&self, event: &RequestEvent) {
        match event {
            RequestEvent::Output { index, tokens, .. } => self.output(*index, tokens.len() as u64),
            RequestEvent::Finished { index, reason, usage } => {
                self.finished(*index, finish_word(*reason), u64::from(usage.cached_tokens));
            }
            RequestEvent::Failed(_) => self.count("error"),
            RequestEvent::PromptLogprobs(_) => {}
        }
    }

    fn output(&self, index: u32, tokens: u64) {
        let mut outputs = self.outputs.borrow_mut();
        let Some(progress) = outputs.get_mut(index as usize).filter(|_| tokens > 0) else { return };
        let now = Instant::now();
        let first = match progress.times {
            None => {
                self.metrics.first_token.observe((now - self.start).as_secs_f64());
                now
            }
            Some((first, last)) => {
                self.metrics.between_tokens.observe((now - last).as_secs_f64());
                first
            }
        };
        progress.times = Some((first, now));
        progress.tokens += tokens;
        self.metrics.generation_tokens.inc_by(tokens);
    }

    fn finished(&self, index: u32, reason: &'static str, cached: u64) {
        self.count(reason);
        let now = Instant::now();
        self.metrics.whole.observe((now - self.start).as_secs_f64());
        if index == 0 {
            self.metrics.prompt_tokens.inc_by(self.prompt_tokens);
            self.metrics.cached_prompt_tokens.inc_by(cached);
            self.metrics.prompt_length.observe(self.prompt_tokens as f64);
        }
        let Some(progress) = self.outputs.borrow().get(index as usize).copied() else { return };
        self.metrics.output_length.observe(progress.tokens as f64);
        if let Some((first, last)) = progress.times {
            self.metrics.decode.observe((now - first).as_secs_f64());
            if progress.tokens > 1 {
                let mean = (last - first).as_secs_f64() / (progress.tokens - 1) as f64;
                self.metrics.per_output_token.observe(mean);
            }
        }
    }

    fn count(&self, finished_reason: &'static str) {
        self.metrics.finished.get_or_create(&Finish { finished_reason }).inc();
    }
}
