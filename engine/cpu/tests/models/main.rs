//! Whole models on the CPU backend, against vectors of Hugging Face transformers (`tests/golden/README.md`).

mod backlog;
mod distribution;
mod draft_model;
mod draft_trees;
mod failures;
mod following;
mod generation;
mod golden;
mod lossless;
#[cfg(feature = "real-model")]
mod smollm2;
mod speculation;
mod speculative_steps;
mod support;
mod tensor_parallel;
