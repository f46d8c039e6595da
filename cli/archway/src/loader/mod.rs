//! From settings to a service: what can be checked in milliseconds, then what takes time.

pub mod capacity;
mod codec;
mod cuda;
mod devices;
mod host;
mod kind;
mod mocked;
mod model;
mod planning;
mod report;
mod request;
pub mod speculation;
mod text;
pub mod tuning;
mod unused;

use anyhow::{Context, Result, ensure};
use engine_server::service::Service;

pub use host::cpu as host_cpu;
pub use kind::Kind;
pub use request::Wanted;

use crate::settings::Options;

/// Settings that passed every check that needs no weights.
pub enum Prepared {
    Mock(mocked::Mocked),
    Model(Box<model::Planned>),
}

/// Checks the settings and makes the plan: a wrong flag, a refused plan and a model that cannot be served fail here,
/// before weights load.
pub fn prepare(options: &Options) -> Result<Prepared> {
    if options.mock_engine == Some(true) {
        return mocked::prepare(options).map(Prepared::Mock);
    }
    let interval = options.mock_interval.unwrap_or(0);
    ensure!(interval == 0, "--mock-interval {interval} is about the mock engine; add --mock-engine, or leave it out");
    let model = options.model.as_deref().context("no model is given; name a folder, a .gguf file or a config.json")?;
    model::prepare(model, options).map(Box::new).map(Prepared::Model)
}

impl Prepared {
    /// The plan as text.
    pub fn plan(&self) -> String {
        match self {
            Self::Mock(_) => "the mock engine computes nothing, so there is no plan".to_owned(),
            Self::Model(planned) => planned.plan.to_string(),
        }
    }

    /// Loads weights and starts the engine.
    pub fn load(self) -> Result<Service> {
        match self {
            Self::Mock(mocked) => Ok(mocked.load()),
            Self::Model(planned) => planned.load(),
        }
    }
}

/// A number of the settings that the engine holds in 32 bits.
fn narrow(flag: &str, number: u64) -> Result<u32> {
    u32::try_from(number).with_context(|| format!("--{flag} {number} is too large"))
}
