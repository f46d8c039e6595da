//! Where a value comes from. No value that affects a decision stands without it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::date::read_date;
use super::words::words;
use crate::quantity::Version;

words! {
    /// How a value came to be known.
    EvidenceKind {
        /// A vendor's document says so.
        Documented = "documented",
        /// Another project's released table says so, for this architecture.
        Upstream = "upstream",
        /// Somebody timed or tested it on this hardware.
        Measured = "measured",
        /// A driver or compiler was asked.
        Queried = "queried",
        /// Nobody checked it. It works, and every decision that rests on it says so.
        Guessed = "guessed",
        /// Taken from the parent record. Written by the resolver, never by an author.
        Inherited = "inherited",
    }
}

impl EvidenceKind {
    /// Whether a strict request may rest on it.
    pub const fn counts_when_strict(self) -> bool {
        !matches!(self, Self::Guessed | Self::Inherited)
    }
}

/// Evidence of a block or of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    pub kind: EvidenceKind,
    /// Id of an entry in `sources.yaml`.
    pub source: String,
    /// For `upstream`: the kernel that the value was measured with or written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub kernel: Option<String>,
    /// What a reader should know before relying on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub note: Option<String>,
    /// For `measured`: the software of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub driver: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub nccl: Option<Version>,
    /// For `measured`: the day of the run, "2026-11-29".
    #[serde(default, deserialize_with = "read_date", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = r"^\d{4}-\d{2}-\d{2}$"))]
    pub date: Option<String>,
}

/// What another project says about the same value, kept where projects disagree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Id of an entry in `sources.yaml`.
    pub source: String,
    /// The value in the form of the key that it is a reading of.
    pub value: serde_json::Value,
    /// Why it is used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub note: Option<String>,
}
