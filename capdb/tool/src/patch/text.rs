//! A report for people: one block for each place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::{Finding, Report, Status};

impl Report {
    pub fn to_text(&self) -> String {
        let mut out =
            format!("{} {} on {} ({}, {}", self.project, self.version, self.gpu, self.arch, self.compute_capability);
        let word = if self.given.is_empty() { "usual machine" } else { "machine" };
        let topology = self.topology.as_deref().unwrap_or("topology unknown");
        let multicast = match self.multicast {
            Some(true) => "multicast",
            Some(false) => "no multicast",
            None => "multicast unknown",
        };
        let _ = write!(out, "; {word}: {topology}, {multicast}");
        if !self.given.is_empty() {
            let _ = write!(out, "; {} given", self.given.join(" and "));
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
        if let Some(kernel) = &self.kernel {
            line("kernel behind", kernel);
        }
        for patch in &self.known_patches {
            line("known patch", &format!("{}: {}  ({})", patch.what, patch.outcome, patch.at));
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
