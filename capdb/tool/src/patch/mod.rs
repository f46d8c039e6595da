//! Gaps in installed copies of other projects: which of their tables lack a GPU, what that does, and what would help.
//!
//! Their source is parsed, never executed and never matched as text. Where it does not have the shape that a record
//! describes, the answer is "cannot tell".

mod behaviour;
mod card;
mod check;
mod condition;
mod gate;
mod literal;
mod pep440;
mod python;
mod records;
mod release;
mod report;
mod table;

pub use card::Card;
pub use check::check;
pub use records::{RecordsError, records};
pub use release::{Release, ReleaseError};
pub use report::{Effect, Finding, Never, Report, Status};

#[cfg(test)]
mod tests;
