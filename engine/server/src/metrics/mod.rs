//! Prometheus metrics under the names of vLLM's dashboards, and our own.

mod answers;
mod engine;
mod histograms;

pub use answers::Answers;
pub use histograms::Histograms;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use crate::admission::Admission;
use crate::service::Service;

/// Media type of `render`'s text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Every metric of one served model.
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub fn new(
        service: &Arc<Service>,
        admission: &Arc<Admission>,
        answers: &Answers,
        log_lines_lost: &Arc<AtomicU64>,
    ) -> Self {
        let labels = [
            (Cow::Borrowed("engine"), Cow::Borrowed("0")),
            (Cow::Borrowed("model_name"), Cow::Owned(service.name().to_owned())),
        ];
        let mut registry = Registry::with_labels(labels.into_iter());
        service.histograms.register(&mut registry);
        answers.register(&mut registry);
        let (service, admission) = (Arc::clone(service), Arc::clone(admission));
        let collector = engine::EngineCollector::new(service, admission, Arc::clone(log_lines_lost));
        registry.register_collector(Box::new(collector));
        Self { registry }
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(16 << 10);
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
