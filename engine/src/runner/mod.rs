//! The engine's thread and the handle to it: joins scheduler, executor and detokeniser.
//!
//! ```text
//! impl Engine {            // Clone + Send + Sync
//!     fn start(executor: Box<dyn Executor>, text: Arc<dyn TextPipeline>, observer: Arc<dyn Observer>,
//!              config: EngineConfig) -> Result<Engine, StartError>;
//!     fn submit(&self, request: Request, sink: Box<dyn EventSink>) -> Result<(), SubmitError>;
//!     fn abort(&self, id: RequestId);
//!     fn drain(&self, deadline: Duration) -> u32;   // blocks; outputs that the deadline cut off
//!     fn stats(&self) -> EngineStats;
//!     fn health(&self) -> Health;
//!     fn capacity(&self) -> Capacity;
//! }
//! ```

mod config;
mod error;
mod observer;
mod stats;
mod text;

pub use config::EngineConfig;
pub use error::{Health, StartError, SubmitError};
pub use observer::{NoObserver, Observation, Observer, Outcome, OutputTimes};
pub use stats::EngineStats;
pub use text::{NoText, TextDecoder, TextPipeline};
