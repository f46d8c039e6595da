//! Tuning: what was measured on one machine, as a site overlay of the database.
//!
//! Measurement → ladders and limits → overlay text → a database with the overlay laid over it. Nothing here measures:
//! the same measurement gives the same overlay, and the same overlay gives the same choices.

mod addition;
mod conclude;
mod fit;
mod measurement;
mod write;

use std::path::Path;

use capdb::database::{Database, OpenError};
use capdb::load;

pub use fit::{Difference, MachineFacts, TuningReport};
pub use measurement::{Group, Measurement, MeasurementError, NormPoint, SumPoint};
pub use write::{Tuned, tune};

/// Lays a tuning file over a database. Errors: no such file, no overlay, an unknown record.
pub fn lay_tuning(database: Database, path: &Path) -> Result<Database, OpenError> {
    database.with_overlay(load::file(path)?)
}

#[cfg(test)]
mod tests;
