//! An executor without a model: deterministic, fast, and strict about the protocol.
//!
//! It keeps the *tokens* of each position in its pages and derives the next token from a hash of all the tokens that
//! it reads back through the page table. A page that was lost, shared wrongly or overwritten therefore changes the
//! answer, and [`answer`] says what it should have been. Every breach of the executor's contract is a fatal error.
//! Tests of scheduler and runner use it, and so do measurements of a server's front end.

mod answer;
mod entry;
mod executor;

pub use answer::{Answer, answer};
pub use executor::{Fault, MockConfig, MockExecutor};
