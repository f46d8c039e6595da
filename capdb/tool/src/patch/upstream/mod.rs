//! What a release says, as readings for the database, and what changed between two releases.

mod cited;
mod drift;
mod import;
mod yaml;

use std::collections::BTreeMap;

use capdb::database::LookupError;
use capdb::record::PatchRecord;
use capdb::resolve::RecordError;
use semver::Version;
use serde::Serialize;

pub use drift::{Drift, drift};
pub use import::{Import, import};

use super::release::Release;

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("the database is broken: {0}")]
    Lookup(LookupError),
    #[error("the database is broken: {0}")]
    Record(RecordError),
}

// The messages hold their causes'; as sources these would be printed twice.
impl From<LookupError> for UpstreamError {
    fn from(error: LookupError) -> Self {
        Self::Lookup(error)
    }
}

impl From<RecordError> for UpstreamError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// A place that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Untold {
    pub feature: String,
    pub version: String,
    pub why: String,
}

/// The record by which a feature is read in a release.
struct Place<'a> {
    record: &'a PatchRecord,
    /// The record covers the release. Otherwise it is the one that was read in the newest release, tried all the same:
    /// a release that nobody read is what these commands are for, and source of another shape is not read by it.
    covers: bool,
}

/// One place for each feature of the project.
fn places<'a>(release: &Release, records: &'a [PatchRecord]) -> BTreeMap<&'a str, Place<'a>> {
    let mut found: BTreeMap<&str, Place<'_>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.project == release.project) {
        let covers = record.versions.matches(&release.semver);
        let better = |known: &Place<'_>| match (covers, known.covers) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => newest(record) > newest(known.record),
        };
        if found.get(record.feature.as_str()).is_none_or(better) {
            found.insert(&record.feature, Place { record, covers });
        }
    }
    found
}

fn newest(record: &PatchRecord) -> Option<Version> {
    record.read_in.iter().filter_map(|version| version.parse().ok()).max()
}
