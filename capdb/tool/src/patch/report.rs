//! What a check found, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
    const fn words(self) -> &'static str {
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
    /// Said where a difference is no fault.
    pub difference_note: Option<String>,
    pub never: Vec<Never>,
    pub help: Vec<String>,
    /// Why it cannot be judged.
    pub cannot_tell: Option<String>,
}

impl Finding {
    /// Whether a user should do something, or know that nothing can be done.
    pub fn is_gap(&self) -> bool {
        matches!(self.status, Status::Missing | Status::Differs) || self.never.iter().any(|never| never.whole)
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

    pub fn to_text(&self) -> String {
        let mut out =
            format!("{} {} on {} ({}, {}", self.project, self.version, self.gpu, self.arch, self.compute_capability);
        if let Some(topology) = &self.topology {
            let multicast = if self.multicast == Some(true) { "multicast" } else { "no multicast" };
            let _ = write!(out, "; usual machine: {topology}, {multicast}");
        }
        out.push_str(")\n");
        for finding in &self.findings {
            finding.write(&mut out);
        }
        for feature in &self.not_judged {
            let _ = writeln!(out, "\n{feature}\n  not judged      no record covers {} {}", self.project, self.version);
        }
        let _ = writeln!(out, "\n{} gap(s), {} place(s) that cannot be judged", self.gaps, self.cannot_tell);
        out
    }
}

impl Finding {
    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "\n{}  [{}]", self.feature, self.id);
        let mut line = |label: &str, text: &str| {
            let _ = writeln!(out, "  {label:<15} {text}");
        };
        if let Some(flag) = &self.enabled_by {
            line("asked for by", flag);
        }
        match self.status {
            Status::CannotTell => line("cannot tell", self.cannot_tell.as_deref().unwrap_or("")),
            Status::Missing => line("missing", &format!("{} is not in {}  ({})", self.key, self.place, self.at)),
            Status::Covered => line("covered", &format!("{} in {}  ({})", self.key, self.place, self.at)),
            Status::Differs => line("differs", &format!("{} in {}  ({})", self.key, self.place, self.at)),
        }
        if let Some(why) = &self.not_reached {
            line("not reached", why);
        }
        if let (Some(effect), Some(text)) = (self.effect, &self.effect_text) {
            let label = if self.not_reached.is_some() { "once reached" } else { "today" };
            line(label, &format!("{}: {text}  ({})", effect.words(), self.effect_at.as_deref().unwrap_or("")));
        }
        if let Some(row) = &self.theirs {
            line("their row", &row_text(row));
        }
        if let Some(ours) = &self.ours {
            let evidence =
                if ours.row.is_empty() { String::new() } else { format!("  ({})", ours.evidence.join("; ")) };
            line("our database", &format!("{}{evidence}", row_text(&ours.row)));
        }
        for difference in &self.differences {
            let text = |value: Option<u64>| value.map_or("no entry".to_owned(), size_text);
            let sides = format!("theirs {}, ours {}", text(difference.theirs), text(difference.ours));
            line("difference", &format!("{} ranks: {sides}", difference.world_size));
        }
        if let Some(note) = &self.difference_note {
            line("", note);
        }
        for never in &self.never {
            let label = if never.whole { "takes no effect" } else { "partly inert" };
            line(label, &format!("{}  ({})", never.why, never.at));
        }
        for help in &self.help {
            line("what helps", help);
        }
    }
}

/// `2: 64MiB, 4: 64MiB`, or `4, 6, 8`.
pub fn row_text(row: &BTreeMap<u32, u64>) -> String {
    if row.is_empty() {
        return "none".to_owned();
    }
    let entry = |(ranks, bytes): (&u32, &u64)| match bytes {
        0 => ranks.to_string(),
        bytes => format!("{ranks}: {}", size_text(*bytes)),
    };
    row.iter().map(entry).collect::<Vec<_>>().join(", ")
}

pub fn size_text(bytes: u64) -> String {
    match bytes {
        0 => "listed".to_owned(),
        bytes if bytes % (1 << 20) == 0 => format!("{}MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}
