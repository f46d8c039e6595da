//! The engine: plain data (`types`), the plan, the model, the cache and the scheduler, joined by traits.
//!
//! Layers inside this crate, lowest first. A module imports modules that come before it in this list, and those of its own
//! entry: `types` → `files`, `sampler` → `weights` → `tokenizer` → `model`, `backend`, `collective` → `load` → `cache` →
//! `scheduler`, `spec` → `executor` → `mock` → `runner`. `plan` alone imports `capdb`; it reads `types`, `model`, `backend`,
//! `collective` and `spec`, and only `files` imports it. A test of the project (`tidy`) holds this order.

pub mod backend;
pub mod cache;
pub mod collective;
pub mod executor;
pub mod files;
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
