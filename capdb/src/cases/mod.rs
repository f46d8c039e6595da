//! Decision cases: unit tests that are data. A case gives a machine, a message and a wish, and expects a decision.

mod format;
mod run;

pub use format::{
    Case, CasesFile, Environment, Expect, Facts, Given, GivenRequest, GivenStack, Message, MulticastAnswer, P2pAnswer,
    Quantization, RequestedAllReduce, RequestedFusion, Speculation,
};
pub use run::{Answer, AskError, Outcome, ask, run};

#[cfg(test)]
mod tests;
