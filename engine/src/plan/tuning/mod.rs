//! Tuning: what was measured on one machine, as a site overlay of the database.
//!
//! Measurement → ladders and limits → overlay text → a database with the overlay laid over it. Nothing here measures:
//! the same measurement gives the same overlay, and the same overlay gives the same choices.

mod conclude;
mod fit;
mod measurement;
mod write;

use std::path::Path;

use capdb::database::{Database, OpenError};
use capdb::load::{TextFile, read_bounded};

pub use fit::{Difference, MachineFacts, TuningReport};
pub use measurement::{Group, Measurement, MeasurementError, NormPoint, SumPoint};
pub use write::{Tuned, tune};

/// Lays a tuning file over a database. Errors: no such file, no overlay, an unknown record.
pub fn lay_tuning(database: Database, path: &Path) -> Result<Database, OpenError> {
    let shown = path.display().to_string();
    let bytes = read_bounded(path).map_err(|cause| OpenError::Io { path: shown.clone(), cause })?;
    let relative = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    database.with_overlay(TextFile { path: shown, relative, bytes })
}

#[cfg(test)]
mod tests;
