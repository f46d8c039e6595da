//! The database's own versions.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `MANIFEST.yaml`: versions of the data and of its schemas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[schemars(regex(pattern = r"^manifest/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Version of the values.
    pub data_version: semver::Version,
    /// Version of each schema that the files use, by its name.
    pub schemas: IndexMap<String, semver::Version>,
    /// Oldest program version that reads this data.
    pub oldest_reader: semver::Version,
}
