//! Whole models on the CPU backend, against vectors of Hugging Face transformers (`tests/golden/README.md`).

mod failures;
mod generation;
mod golden;
mod speculation;
mod support;
mod tensor_parallel;
