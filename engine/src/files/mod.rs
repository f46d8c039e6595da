//! Reading files that a user or a checkpoint names: regular files alone, no more bytes than a limit, JSON without repeated keys.
//!
//! What opens a file is the database's own function, so both programs refuse the same things; it comes through [`crate::plan`],
//! the one module that imports `capdb`.

mod bounded;
mod json;

pub use bounded::{LARGEST_TEXT, read_bounded, read_bounded_text};
pub(crate) use json::read_json;

pub use crate::plan::{is_there, open_regular};
