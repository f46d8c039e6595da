//! Gaps in installed copies of other projects: which of their tables lack a GPU, what that does, what would help, and the
//! smallest edits that close them.
//!
//! Their source is parsed, never executed and never matched as text. Where it does not have the shape that a record
//! describes, the answer is "cannot tell".

mod apply;
mod behaviour;
mod card;
mod check;
mod condition;
mod edit;
mod gate;
mod judge;
mod literal;
mod pep440;
mod python;
mod records;
mod release;
mod report;
mod table;
mod text;
mod upstream;

pub use apply::{
    FOLDER, Options, Outcome, Plan, PlanError, Reason, Restored, Step, Verdict, WriteError, carry_out, plan, revert,
    would_be_refused,
};
pub use card::Card;
pub use check::check;
pub use records::{RecordsError, fault, records};
pub use release::{Release, ReleaseError};
pub use report::{Effect, Finding, Never, Report, Status};
pub use upstream::{Drift, Import, UpstreamError, drift, import};

#[cfg(test)]
mod tests;
