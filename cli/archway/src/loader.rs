//! From settings to a service: what can be checked at once, then what takes time.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use engine_server::mock::{self, MockSizes};
use engine_server::service::Service;

use crate::settings::Options;

/// Settings that passed every check that needs no weights.
pub struct Prepared {
    names: Vec<String>,
    sizes: MockSizes,
}

/// Checks the settings, in milliseconds: a wrong one fails before weights load.
pub fn prepare(options: &Options) -> Result<Prepared> {
    if options.mock_engine != Some(true) {
        let model =
            options.model.as_deref().context("no model is given; name a folder, a .gguf file or a config.json")?;
        bail!("{model} cannot be served by this build: it has no engine but the mock (--mock-engine)");
    }
    let default = MockSizes::default();
    let names = options.served_model_name.clone().or_else(|| options.model.clone().map(|model| vec![model]));
    let context = options.max_model_len.map_or(Ok(default.context), |count| u32::try_from(count.0));
    let sizes = MockSizes {
        interval: options.mock_interval.map_or(default.interval, Duration::from_millis),
        context: context.context("--max-model-len is too large")?,
        slots: options.max_num_seqs.unwrap_or(default.slots),
    };
    Ok(Prepared { names: names.unwrap_or_else(|| vec!["mock".to_owned()]), sizes })
}

impl Prepared {
    /// Loads weights and starts the engine.
    pub fn load(self) -> Result<Service> {
        let (service, _engine) = mock::service(self.names, self.sizes);
        Ok(service)
    }
}
