//! Closing gaps: which edits are made and which are refused, each with its reason and place; then the writing.

mod decide;
mod guard;
mod outcome;
mod plan;
mod receipt;
mod revert;
mod running;
mod write;

pub use decide::{Options, Reason, Step, Verdict};
pub use outcome::{Outcome, Restored};
pub use plan::{Plan, PlanError, plan};
pub use receipt::FOLDER;
pub use revert::revert;
pub use write::{WriteError, carry_out, would_be_refused};
