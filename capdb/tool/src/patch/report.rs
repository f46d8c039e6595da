//! What a check found, for programs; `text` writes it for people.

use std::collections::BTreeMap;

use capdb::record::PatchRecord;
use serde::Serialize;

/// How a place stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The GPU has its row, or passes the gate.
    Covered,
    Missing,
    /// The row differs from a value that was measured for the same kernel.
    Differs,
    /// The source does not have the shape that the record describes.
    CannotTell,
}

/// What a missing row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    WouldCrash,
    SilentFallback,
    OffWithWarning,
    OffSilently,
}

impl Effect {
    pub const fn words(self) -> &'static str {
        match self {
            Self::WouldCrash => "would crash",
            Self::SilentFallback => "falls back silently",
            Self::OffWithWarning => "off, with a warning",
            Self::OffSilently => "off, silently",
        }
    }
}

/// Why a row takes no effect although it is there.
#[derive(Clone, Debug, Serialize)]
pub struct Never {
    pub why: String,
    /// `file:line`.
    pub at: String,
    /// It holds for every world size.
    pub whole: bool,
}

/// One value of ours beside one of theirs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub world_size: u32,
    /// Bytes; `None` where there is no such entry.
    pub theirs: Option<u64>,
    pub ours: Option<u64>,
}

/// Our row.
#[derive(Clone, Debug, Serialize)]
pub struct Ours {
    /// World size → bytes; 0 where the row is a list of world sizes.
    pub row: BTreeMap<u32, u64>,
    /// Evidence and place of its values.
    pub evidence: Vec<String>,
}

/// An edit that people are known to make, and what becomes of it on this card.
#[derive(Clone, Debug, Serialize)]
pub struct KnownPatch {
    pub what: String,
    pub outcome: String,
    /// `file:line` that decides it.
    pub at: String,
}

/// One table or gate.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub id: String,
    pub feature: String,
    pub enabled_by: Option<String>,
    /// Name of the table, or the gate's expression.
    pub place: String,
    /// `file:line` of the table, of the row where there is one, or of the gate.
    pub at: String,
    pub key: String,
    pub status: Status,
    pub effect: Option<Effect>,
    pub effect_at: Option<String>,
    pub effect_text: Option<String>,
    /// Why the lookup is not even reached today.
    pub not_reached: Option<String>,
    /// Their row, world size → bytes.
    pub theirs: Option<BTreeMap<u32, u64>>,
    pub ours: Option<Ours>,
    pub differences: Vec<Difference>,
    /// Said where a difference is not a fault.
    pub difference_note: Option<String>,
    pub never: Vec<Never>,
    /// Which majors the kernel behind the place is built for, as far as it could be read.
    pub kernel: Option<String>,
    pub known_patches: Vec<KnownPatch>,
    pub help: Vec<String>,
    /// A missing row is no gap here: the default suffices.
    #[serde(skip)]
    pub default_suffices: bool,
    /// Why it cannot be judged.
    pub cannot_tell: Option<String>,
}

impl Finding {
    /// Nothing is known yet.
    pub fn blank(record: &PatchRecord) -> Self {
        Self {
            id: record.id.clone(),
            feature: record.feature.clone(),
            enabled_by: record.enabled_by.clone(),
            place: String::new(),
            at: String::new(),
            key: String::new(),
            status: Status::Covered,
            effect: None,
            effect_at: None,
            effect_text: None,
            not_reached: None,
            theirs: None,
            ours: None,
            differences: Vec::new(),
            difference_note: None,
            never: Vec::new(),
            kernel: None,
            known_patches: Vec::new(),
            help: Vec::new(),
            default_suffices: record.table.as_ref().is_some_and(|table| table.default_suffices),
            cannot_tell: None,
        }
    }

    /// Whether the GPU has its row, or passes the gate.
    pub fn is_covered(&self) -> bool {
        self.status == Status::Covered
    }

    /// Whether a user should do something, or know that nothing can be done.
    pub fn is_gap(&self) -> bool {
        let open =
            matches!(self.status, Status::Missing | Status::Differs) || self.never.iter().any(|never| never.whole);
        open && !(self.default_suffices && self.status == Status::Missing)
    }
}

/// A whole check.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub project: String,
    pub version: String,
    pub gpu: String,
    pub arch: String,
    pub compute_capability: String,
    /// As usual for the product; only an attempt on the machine proves it.
    pub multicast: Option<bool>,
    pub topology: Option<String>,
    /// What of the machine the caller gave; the rest is assumed from the product.
    pub given: Vec<&'static str>,
    pub findings: Vec<Finding>,
    /// Features whose records do not cover this release.
    pub not_judged: Vec<String>,
    pub gaps: usize,
    pub cannot_tell: usize,
}

impl Report {
    /// 0 nothing to do, 1 gaps, 2 something cannot be told.
    pub fn exit_code(&self) -> u8 {
        match (self.cannot_tell, self.gaps) {
            (1.., _) => 2,
            (0, 1..) => 1,
            (0, 0) => 0,
        }
    }
}
