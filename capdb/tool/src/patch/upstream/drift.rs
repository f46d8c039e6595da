//! Rows that differ between two releases of a project.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use capdb::record::{PatchKey, PatchRecord};
use serde::Serialize;

use super::{Place, Untold, places};
use crate::patch::literal::Literal;
use crate::patch::python::{Source, SourceError};
use crate::patch::release::Release;
use crate::patch::table::Table;
use crate::patch::text::row_text;
use crate::patch::{behaviour, gate};

/// Two releases side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Drift {
    pub project: String,
    pub old: String,
    pub new: String,
    pub changes: Vec<Change>,
    pub untold: Vec<Untold>,
}

/// One row, or what is done without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub feature: String,
    pub key: String,
    pub old: Option<Entry>,
    pub new: Option<Entry>,
}

/// A row of one release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub value: String,
    /// `file:line`.
    pub at: String,
}

/// Key → entry, in the order of the source.
type Entries = Vec<(String, Entry)>;

/// Compares every known place.
pub fn drift(old: &Release, new: &Release, records: &[PatchRecord]) -> Drift {
    let mut drift = Drift {
        project: new.project.to_string(),
        old: old.version.clone(),
        new: new.version.clone(),
        changes: Vec::new(),
        untold: Vec::new(),
    };
    let (mut before, mut after) = (places(old, records), places(new, records));
    let features: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    for feature in features {
        let mut side = |release: &Release, place: Option<Place<'_>>| {
            let place = place?;
            match entries(release, place.record) {
                Ok(entries) => Some(entries),
                // A place of other releases alone need not be here.
                Err(_) if !place.covers => Some(Vec::new()),
                Err(error) => {
                    let (version, why) = (release.version.clone(), error.to_string());
                    drift.untold.push(Untold { feature: feature.to_owned(), version, why });
                    None
                }
            }
        };
        let pair = (side(old, before.remove(feature)), side(new, after.remove(feature)));
        if let (Some(old), Some(new)) = pair {
            drift.changes.extend(changes(feature, old, new));
        }
    }
    if drift.changes.is_empty() && drift.untold.is_empty() && records.iter().all(|it| it.project != new.project) {
        let why = "no record of this project is known".to_owned();
        drift.untold.push(Untold { feature: new.project.to_string(), version: new.version.clone(), why });
    }
    drift
}

fn changes(feature: &str, old: Entries, mut new: Entries) -> Vec<Change> {
    let mut found = Vec::new();
    for (key, old) in old {
        let at = new.iter().position(|(other, _)| *other == key);
        let new = at.map(|at| new.remove(at).1);
        if new.as_ref().is_none_or(|new| new.value != old.value) {
            found.push(Change { feature: feature.to_owned(), key, old: Some(old), new });
        }
    }
    let added = new.into_iter();
    found.extend(added.map(|(key, new)| Change { feature: feature.to_owned(), key, old: None, new: Some(new) }));
    found
}

/// Everything that a record reads in a release.
fn entries(release: &Release, record: &PatchRecord) -> Result<Entries, SourceError> {
    let mut found = Entries::new();
    if let Some(shape) = &record.table {
        let source = Source::read(&release.root, &shape.file)?;
        let at = |line: usize| format!("{}:{line}", shape.file);
        if shape.key == PatchKey::CapabilityRanksNodes {
            let (value, node) = source.constant(shape.class.as_deref(), &shape.name)?;
            let Literal::Mapping(rows) = value else { return Err(source.shape(node, "is not a dictionary")) };
            let row = |(key, value, line): (Literal, Literal, usize)| {
                (key.to_string(), Entry { value: format!("{value} MiB"), at: at(line) })
            };
            found.extend(rows.into_iter().map(row));
        } else {
            let row = |(key, row, line): (Literal, _, usize)| {
                let key = if shape.key == PatchKey::AnyGpu { "any GPU".to_owned() } else { key.to_string() };
                (key, Entry { value: row_text(&row), at: at(line) })
            };
            found.extend(Table::read(&source, shape)?.rows.into_iter().map(row));
        }
        if shape.key != PatchKey::AnyGpu {
            let lookup = Source::read(&release.root, &shape.lookup)?;
            // No test of a number in front of the lookup stops this one.
            let without = behaviour::read(&lookup, &shape.name, i64::MAX)?;
            let entry = Entry { value: without.effect.words().to_owned(), at: without.at };
            found.push(("a GPU without a row".to_owned(), entry));
        }
    }
    if let Some(shape) = &record.gate {
        let source = Source::read(&release.root, &shape.file)?;
        let helpers = shape.majors.as_ref().map(|file| Source::read(&release.root, file)).transpose()?;
        let gate = gate::read(&source, helpers.as_ref(), shape)?;
        let pass = |(pass, at): &(gate::Pass, String)| {
            (pass.to_string(), Entry { value: "passes".to_owned(), at: at.clone() })
        };
        found.extend(gate.passing.iter().map(pass));
    }
    Ok(found)
}

impl Drift {
    /// 0 the same; 1 rows changed; 2 a place cannot be read.
    pub fn exit_code(&self) -> u8 {
        match (self.untold.is_empty(), self.changes.is_empty()) {
            (false, _) => 2,
            (true, false) => 1,
            (true, true) => 0,
        }
    }

    pub fn to_text(&self) -> String {
        let mut out = format!("{} {} → {}\n", self.project, self.old, self.new);
        let mut last = "";
        for change in &self.changes {
            if change.feature != last {
                let _ = writeln!(out, "\n{}", change.feature);
                last = &change.feature;
            }
            let side = |entry: &Option<Entry>| match entry {
                Some(entry) => format!("{} ({})", entry.value, entry.at),
                None => "nothing".to_owned(),
            };
            let _ = writeln!(out, "  {}: {} → {}", change.key, side(&change.old), side(&change.new));
        }
        for untold in &self.untold {
            let _ = writeln!(out, "\n{}\n  cannot tell in {}: {}", untold.feature, untold.version, untold.why);
        }
        let _ = writeln!(
            out,
            "\n{} row(s) changed, {} place(s) that cannot be read",
            self.changes.len(),
            self.untold.len()
        );
        out
    }
}
