//! The engine: plain data (`types`), the plan, the model, the cache and the scheduler, joined by traits.
//!
//! Layers inside this crate, lowest first; a module imports only what stands above it in this list:
//! `types` → `weights` → `tokenizer` → `model`, `backend`, `collective` → `load` → `cache`, `scheduler`, `sampler`, `spec` →
//! `executor`, `mock` → `runner`. `plan` alone imports `capdb`.

pub mod backend;
pub mod cache;
pub mod collective;
pub mod executor;
pub mod load;
pub mod mock;
pub mod model;
pub mod plan;
pub mod runner;
pub mod sampler;
pub mod scheduler;
pub mod spec;
pub mod tokenizer;
pub mod types;
pub mod weights;
