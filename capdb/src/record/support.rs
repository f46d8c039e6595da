//! Whether something runs on an architecture.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::words::words;
use crate::quantity::Version;

words! {
    /// How well something is supported.
    Support {
        /// By instructions or kernels made for it.
        Native = "native",
        /// By other instructions: right, slower.
        Emulated = "emulated",
        /// Not at all.
        Absent = "absent",
        /// The machine must be asked.
        Probe = "probe",
    }
}

/// Support of one kernel or weight format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelSupport {
    /// May be left out where a parent gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Support")]
    pub support: Option<Support>,
    /// Oldest toolkit whose compiler can build it, where that is newer than the architecture's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub min_toolkit: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Evidence")]
    pub evidence: Option<Evidence>,
    /// What other projects say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<super::Reading>,
}
