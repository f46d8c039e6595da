//! An engine that answers with its own prompt. It measures the front end alone, and tests it.

mod books;
mod codec;
mod engine;
mod sequence;

pub use codec::MockCodec;
pub use engine::MockEngine;

use std::sync::Arc;
use std::time::Duration;

use ::engine::load::GenerationDefaults;
use ::engine::runner::Observer;
use serde_json::{Value, json};

use crate::backend::{CollectiveCalls, PlanFallback, PlanReport};
use crate::metrics::Histograms;
use crate::service::{ModelCard, Service};

/// Token positions in a page.
const PAGE_SIZE: u32 = 16;

/// Nothing is computed, so nothing is planned.
#[derive(Debug)]
pub struct MockPlan;

impl PlanReport for MockPlan {
    fn document(&self) -> Value {
        json!({"backend": "mock", "collectives": []})
    }

    fn collective_calls(&self) -> Vec<CollectiveCalls> {
        Vec::new()
    }

    fn fallbacks(&self) -> Vec<PlanFallback> {
        Vec::new()
    }
}

/// Sizes of a mock service.
#[derive(Clone, Copy, Debug)]
pub struct MockSizes {
    /// Time from token to token; zero answers at once.
    pub interval: Duration,
    pub context: u32,
    pub slots: u32,
}

impl Default for MockSizes {
    fn default() -> Self {
        Self { interval: Duration::ZERO, context: 8192, slots: 256 }
    }
}

/// A service whose engine is a mock, and the mock itself.
pub fn service(names: Vec<String>, sizes: MockSizes) -> (Service, Arc<MockEngine>) {
    let histograms = Arc::new(Histograms::default());
    let pages = sizes.slots * sizes.context.div_ceil(PAGE_SIZE);
    let observer = Arc::clone(&histograms) as Arc<dyn Observer>;
    let backend = Arc::new(MockEngine::start(sizes.interval, sizes.slots as usize, pages, observer));
    let model = ModelCard {
        names,
        path: "mock".to_owned(),
        tokenizer_path: "mock".to_owned(),
        context: sizes.context,
        slots: sizes.slots,
        pages,
        page_size: PAGE_SIZE,
        tensor_parallel: 1,
    };
    let service = Service {
        model,
        backend: Arc::clone(&backend) as _,
        codec: Arc::new(MockCodec),
        plan: Arc::new(MockPlan),
        histograms,
        defaults: GenerationDefaults::default(),
    };
    (service, backend)
}
