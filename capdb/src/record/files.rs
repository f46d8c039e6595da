//! The files beside the records: manifest, vocabulary, sources, order, known stacks and site overlays.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::algorithm::AllReduce;
use super::evidence::EvidenceKind;
use super::fusion::Fusion;
use super::words::{AlgorithmId, ReasonClass, Topology, words};
use crate::quantity::Version;

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

/// `vocab.yaml`: closed lists, each word with its meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VocabFile {
    #[schemars(regex(pattern = r"^vocab/1(\.[0-9]+)?$"))]
    pub schema: String,
    pub topologies: IndexMap<String, Word>,
    pub algorithms: IndexMap<String, Word>,
    pub dtypes: IndexMap<String, Word>,
    pub evidence: IndexMap<String, Word>,
    pub support: IndexMap<String, Word>,
    pub features: IndexMap<String, FeatureWord>,
    pub fusions: IndexMap<String, Word>,
    pub attention: IndexMap<String, Word>,
    pub quantization: IndexMap<String, Word>,
    pub reasons: IndexMap<String, ReasonWord>,
}

/// A word and what it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Word {
    #[schemars(length(min = 1))]
    pub meaning: String,
}

/// A feature, and whether code that uses it is portable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FeatureWord {
    #[schemars(length(min = 1))]
    pub meaning: String,
    /// Usable in base targets, so that every machine that runs the base code must have it. Features of `a` and `f`
    /// targets are not portable.
    pub portable: bool,
    /// The driver attribute that answers it, where one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub attribute: Option<String>,
}

/// A reason of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonWord {
    pub class: ReasonClass,
    #[schemars(length(min = 1))]
    pub meaning: String,
    /// What the reader can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub hint: Option<String>,
}

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

impl Source {
    /// What a measurement must say of its run and does not: GPU, driver, date. Nothing for other kinds.
    pub fn lacks(&self) -> Vec<&'static str> {
        let given = [("gpu", self.gpu.is_some()), ("driver", self.driver.is_some()), ("date", self.date.is_some())];
        let measured = self.kind == SourceKind::Measurement;
        given.into_iter().filter(|(_, given)| measured && !given).map(|(name, _)| name).collect()
    }
}

/// Whether a text is a day of the Gregorian calendar, "2026-11-29".
pub fn is_date(text: &str) -> bool {
    let fits = |(index, byte): (usize, u8)| if matches!(index, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    if text.len() != 10 || !text.bytes().enumerate().all(fits) {
        return false;
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(0);
    let (year, month, day) = (part(0..4), part(5..7), part(8..10));
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// A date as records give it. Errors: no day of the calendar.
pub(super) fn read_date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text.as_deref().and_then(date_fault) {
        Some(fault) => Err(D::Error::custom(fault)),
        None => Ok(text),
    }
}

/// What is wrong with a date.
pub fn date_fault(text: &str) -> Option<String> {
    (!is_date(text)).then(|| format!("`date` cannot be `{text}`; write a day like 2026-11-29"))
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

/// `order.yaml`: the order in which `auto` tries the algorithms, per topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderFile {
    #[schemars(regex(pattern = r"^order/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Each list ends with `nccl`.
    pub order: BTreeMap<Topology, Vec<AlgorithmId>>,
}

/// `stack.yaml`: what is known about toolkits, drivers and NCCL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackFile {
    #[schemars(regex(pattern = r"^stack/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Oldest driver for binaries built with a toolkit of this major version.
    pub min_driver_by_toolkit_major: IndexMap<String, Version>,
    /// Id in `sources.yaml` of that table.
    pub source: String,
    /// Combinations that are known to give wrong results or to crash.
    #[serde(default)]
    pub known_bad: Vec<KnownBadStack>,
}

/// A combination that is known to be bad. Every condition that is given must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownBadStack {
    #[schemars(length(min = 1))]
    pub id: String,
    /// What goes wrong.
    #[schemars(length(min = 1))]
    pub why: String,
    pub source: String,
    /// Record ids; no key means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StackRange")]
    pub toolkit: Option<StackRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StackRange")]
    pub driver: Option<StackRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StackRange")]
    pub nccl: Option<StackRange>,
}

/// A closed range of versions, both ends included. Open ends are not allowed: nobody tested the future.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackRange {
    pub from: Version,
    pub to: Version,
}

/// A site overlay: values measured on one machine, laid over everything else. `archway tune` writes one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overlay {
    #[schemars(regex(pattern = r"^overlay/1(\.[0-9]+)?$"))]
    pub schema: String,
    /// Record that it is laid over: the id of a product or of an architecture.
    #[schemars(length(min = 1))]
    pub applies_to: String,
    /// What the machine looked like; compared with the machine that reads it.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fingerprint: IndexMap<String, String>,
    /// Runs that its evidence cites and that `sources.yaml` does not know.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub sources: IndexMap<String, Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllReduce")]
    pub allreduce: Option<AllReduce>,
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub fusions: IndexMap<String, Fusion>,
}

#[cfg(test)]
mod tests {
    use super::is_date;

    #[test]
    fn dates_are_days_of_the_calendar() {
        for day in ["2026-11-29", "2024-02-29", "2000-02-29", "2026-12-31", "2026-04-30"] {
            assert!(is_date(day), "{day}");
        }
        for none in ["2026-02-30", "2026-02-29", "1900-02-29", "2026-04-31", "2026-13-01", "2026-00-10", "2026-01-00"] {
            assert!(!is_date(none), "{none}");
        }
        for form in ["", "2026-1-01", "2026/01/01", "2026-01-01T00", "٢٠٢٦-01", "20260101xx"] {
            assert!(!is_date(form), "{form}");
        }
    }
}
