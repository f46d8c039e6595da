//! Where a resolved value comes from.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::{Evidence, EvidenceKind};

/// How far a value may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Own evidence that a strict request may rest on.
    Known,
    /// From a parent record.
    Inherited,
    /// Own evidence says so, or there is none.
    Guessed,
}

/// File, line and evidence of one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Id of the record that the value stands in.
    pub layer: String,
    /// Path of its file inside the database, or the overlay's path.
    pub file: String,
    /// From 1; 0 where no file exists (a decision case's `record`).
    pub line: usize,
    /// The record is a parent of the one that was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
    /// Evidence that its own record gives for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

impl Origin {
    /// The kind that a reader of the resolved form sees: `inherited` for everything from a parent.
    pub fn kind(&self) -> EvidenceKind {
        match (&self.evidence, self.inherited) {
            (_, true) => EvidenceKind::Inherited,
            (Some(evidence), false) => evidence.kind,
            (None, false) => EvidenceKind::Guessed,
        }
    }

    pub fn provenance(&self) -> Provenance {
        match self.kind() {
            EvidenceKind::Inherited => Provenance::Inherited,
            EvidenceKind::Guessed => Provenance::Guessed,
            _ => Provenance::Known,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { formatter.write_str(&self.file) } else { write!(formatter, "{}:{}", self.file, self.line) }
    }
}
