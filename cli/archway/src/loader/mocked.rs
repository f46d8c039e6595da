//! The mock engine's service.

use std::time::Duration;

use anyhow::Result;
use engine_server::mock::{self, MockSizes};
use engine_server::service::Service;

use super::narrow;
use crate::settings::Options;

/// A mock engine that is ready to start.
pub struct Mocked {
    names: Vec<String>,
    sizes: MockSizes,
}

pub fn prepare(options: &Options) -> Result<Mocked> {
    let default = MockSizes::default();
    let named = options.served_model_name.clone().or_else(|| options.model.clone().map(|model| vec![model]));
    let sizes = MockSizes {
        interval: options.mock_interval.map_or(default.interval, Duration::from_millis),
        context: options.max_model_len.map_or(Ok(default.context), |count| narrow("max-model-len", count.0))?,
        slots: options.max_num_seqs.unwrap_or(default.slots),
    };
    Ok(Mocked { names: named.unwrap_or_else(|| vec!["mock".to_owned()]), sizes })
}

impl Mocked {
    pub fn load(self) -> Service {
        mock::service(self.names, self.sizes).0
    }
}
