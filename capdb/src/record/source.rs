//! What evidence cites.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::date::read_date;
use super::evidence::EvidenceKind;
use super::words::words;
use crate::quantity::Version;

/// `sources.yaml`: everything that evidence may cite. Entries are superseded, never deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcesFile {
    #[schemars(regex(pattern = r"^sources/1(\.[0-9]+)?$"))]
    pub schema: String,
    pub sources: IndexMap<String, Source>,
}

words! {
    /// What a source is.
    SourceKind {
        /// A released package or a commit of a project.
        Project = "project",
        /// A vendor's document.
        Document = "document",
        /// A run on hardware.
        Measurement = "measurement",
        /// An issue, a pull request or a report.
        Thread = "thread",
        /// Our own judgement.
        Judgement = "judgement",
    }
}

impl SourceKind {
    /// Whether a value of this evidence may cite such a source.
    pub const fn carries(self, evidence: EvidenceKind) -> bool {
        match evidence {
            EvidenceKind::Measured => matches!(self, Self::Measurement | Self::Thread),
            EvidenceKind::Documented | EvidenceKind::Queried => !matches!(self, Self::Judgement),
            EvidenceKind::Upstream => matches!(self, Self::Project | Self::Thread),
            EvidenceKind::Guessed | EvidenceKind::Inherited => true,
        }
    }
}

/// One source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub kind: SourceKind,
    #[schemars(length(min = 1))]
    pub title: String,
    /// Project name, e.g. `vllm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub project: Option<String>,
    /// Release or commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub version: Option<String>,
    /// File inside the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub url: Option<String>,
    /// For a measurement: the product, e.g. `2x NVIDIA H200`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub gpu: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub driver: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Version")]
    pub nccl: Option<Version>,
    /// When it was read or measured, "2026-11-29".
    #[serde(default, deserialize_with = "read_date", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = r"^\d{4}-\d{2}-\d{2}$"))]
    pub date: Option<String>,
    /// How far to trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub superseded_by: Option<String>,
}

impl Source {
    /// What a measurement must say of its run and does not: GPU, driver, date. Nothing for other kinds.
    pub fn lacks(&self) -> Vec<&'static str> {
        let given = [("gpu", self.gpu.is_some()), ("driver", self.driver.is_some()), ("date", self.date.is_some())];
        let measured = self.kind == SourceKind::Measurement;
        given.into_iter().filter(|(_, given)| measured && !given).map(|(name, _)| name).collect()
    }
}
