//! The state that every route sees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::admission::Admission;
use crate::auth::Keys;
use crate::body::BodyRoom;
use crate::error::ApiError;
use crate::metrics::{Answers, Metrics};
use crate::service::Service;
use crate::settings::Settings;

/// What the server can do at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ready,
    Loading,
    Draining,
    /// Loading went wrong, or the engine cannot go on.
    Failed(String),
}

impl Health {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ready => "ok",
            Self::Loading => "loading",
            Self::Draining => "draining",
            Self::Failed(_) => "failed",
        }
    }

    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::Loading => Some("the model is loading".to_owned()),
            Self::Draining => Some("the server is shutting down".to_owned()),
            Self::Failed(reason) => Some(reason.clone()),
        }
    }
}

/// A loaded service and its metrics.
pub struct Loaded {
    pub service: Arc<Service>,
    pub metrics: Metrics,
    pub startup_seconds: f64,
}

/// One server. Starts in `Health::Loading`.
pub struct App {
    pub settings: Settings,
    pub keys: Keys,
    pub admission: Arc<Admission>,
    pub bodies: BodyRoom,
    pub answers: Answers,
    /// Seconds since 1970.
    pub started: u64,
    start: Instant,
    loaded: OnceLock<Loaded>,
    failed: OnceLock<String>,
    draining: AtomicBool,
}

impl App {
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            keys: Keys::new(&settings.api_keys),
            bodies: BodyRoom::new(settings.limits.body_bytes),
            answers: Answers::default(),
            settings,
            admission: Arc::new(Admission::default()),
            started: crate::answer::now(),
            start: Instant::now(),
            loaded: OnceLock::new(),
            failed: OnceLock::new(),
            draining: AtomicBool::new(false),
        })
    }

    /// Opens the doors. A second call has no effect.
    pub fn ready(&self, service: Service) {
        let service = Arc::new(service);
        let metrics = Metrics::new(&service, &self.admission, &self.answers, &self.settings.log_lines_lost);
        let startup_seconds = self.start.elapsed().as_secs_f64();
        let _first_wins = self.loaded.set(Loaded { service, metrics, startup_seconds });
    }

    /// Says why the model could not be loaded.
    pub fn failed(&self, reason: String) {
        let _first_wins = self.failed.set(reason);
    }

    /// Refuses new requests from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub fn loaded(&self) -> Option<&Loaded> {
        self.loaded.get()
    }

    pub fn health(&self) -> Health {
        if self.draining.load(Ordering::Acquire) {
            return Health::Draining;
        }
        self.condition()
    }

    /// Why the model could not be loaded, or why the engine cannot go on; also while the server drains.
    pub fn failure(&self) -> Option<String> {
        match self.condition() {
            Health::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    fn condition(&self) -> Health {
        if let Some(reason) = self.failed.get() {
            return Health::Failed(reason.clone());
        }
        match self.loaded.get() {
            None => Health::Loading,
            Some(loaded) => match loaded.service.backend.health() {
                engine::runner::Health::Ready => Health::Ready,
                engine::runner::Health::Draining | engine::runner::Health::Stopped => Health::Draining,
                engine::runner::Health::Failed(reason) => Health::Failed(reason),
            },
        }
    }

    /// The loaded model, for routes that only read.
    pub fn model(&self) -> Result<&Loaded, ApiError> {
        self.loaded.get().ok_or_else(|| unavailable(&self.health()))
    }

    /// The loaded model, for routes that generate.
    pub fn open(&self) -> Result<&Loaded, ApiError> {
        match self.health() {
            Health::Ready => self.model(),
            health => Err(unavailable(&health)),
        }
    }

    /// Sequences that may be inside at once.
    pub fn most_sequences(&self, loaded: &Loaded) -> usize {
        loaded.service.most_sequences(&self.settings.limits)
    }
}

fn unavailable(health: &Health) -> ApiError {
    let code = match health {
        Health::Ready | Health::Loading => "model_loading",
        Health::Draining => "shutting_down",
        Health::Failed(_) => "engine_failed",
    };
    let reason = health.reason().unwrap_or_else(|| "the model is loading".to_owned());
    ApiError::unavailable(code, reason)
}
