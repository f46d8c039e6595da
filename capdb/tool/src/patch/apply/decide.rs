//! Which gaps are closed, and why the others are not.

use std::collections::BTreeMap;

use capdb::record::{PatchKey, PatchRecord, PatchRow};
use capdb::resolve::RecordError;
use serde::Serialize;

use crate::patch::card::{Card, OurRow};
use crate::patch::report::{Effect, Finding, Report, Status};

/// What the user takes upon himself.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Records to close; empty for every table. A gate is opened only if it is named.
    pub only: Vec<String>,
    /// Write a row that takes no effect on this card.
    pub force: bool,
    /// Write a value that nobody checked on this card.
    pub allow_guessed: bool,
}

/// What becomes of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Edit,
    /// The gap is fixed already, or there never was one.
    NothingToDo,
    /// Not asked for.
    LeftAlone,
    Refused,
    /// The source does not have the recorded shape.
    CannotTell,
}

/// One reason, with its place where it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub why: String,
    pub at: Option<String>,
}

impl Reason {
    fn new(why: impl Into<String>, at: Option<&str>) -> Self {
        Self { why: why.into(), at: at.map(str::to_owned) }
    }
}

/// One place.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub id: String,
    pub feature: String,
    pub place: String,
    pub at: String,
    pub verdict: Verdict,
    pub reasons: Vec<Reason>,
    /// What is written, one line.
    pub adds: Option<String>,
    /// Other architectures that the edit is for as well, because the place tells them by their major alone.
    pub also_for: Vec<String>,
}

/// A step, with what its edit needs.
pub struct Decided {
    pub step: Step,
    pub ours: Option<OurRow>,
    /// Values to replace in a row that is there.
    pub corrections: BTreeMap<u32, u64>,
}

/// Decides about every place of a report. `records` are those of the report's findings, in the same order.
pub fn decide(
    report: &Report,
    records: &[&PatchRecord],
    card: &Card,
    options: &Options,
) -> Result<Vec<Decided>, RecordError> {
    let mut all = Vec::new();
    for (finding, record) in report.findings.iter().zip(records) {
        let ours = match record.table.as_ref().and_then(|table| table.database) {
            Some(value) => card.ours(value)?,
            None => None,
        };
        all.push(one(finding, record, ours, card, options));
    }
    follow(&mut all, report, records, options);
    Ok(all)
}

fn one(finding: &Finding, record: &PatchRecord, ours: Option<OurRow>, card: &Card, options: &Options) -> Decided {
    let named = options.only.contains(&record.id);
    let mut corrections = BTreeMap::new();
    let (verdict, reasons) = if !named && !options.only.is_empty() {
        (Verdict::LeftAlone, Vec::new())
    } else if let Some(why) = &finding.cannot_tell {
        (Verdict::CannotTell, vec![Reason::new(why, None)])
    } else if finding.status == Status::Covered {
        (Verdict::NothingToDo, covered(finding))
    } else if record.gate.is_some() && !named {
        let why = format!("a gate is opened only if it is named: --only {}", record.id);
        (Verdict::LeftAlone, vec![Reason::new(why, Some(&finding.at))])
    } else {
        if finding.status == Status::Differs {
            corrections = measured(finding, ours.as_ref());
        }
        let reasons = objections(finding, record, ours.as_ref(), card, options);
        (if reasons.is_empty() { Verdict::Edit } else { Verdict::Refused }, reasons)
    };
    let by_major = match (&record.table, &record.gate) {
        (Some(table), _) => table.key == PatchKey::Major,
        (None, Some(gate)) => !gate.terms.is_empty(),
        (None, None) => false,
    };
    let step = Step {
        id: finding.id.clone(),
        feature: finding.feature.clone(),
        place: finding.place.clone(),
        at: finding.at.clone(),
        verdict,
        reasons,
        adds: None,
        also_for: if by_major { card.same_major.clone() } else { Vec::new() },
    };
    Decided { step, ours, corrections }
}

fn covered(finding: &Finding) -> Vec<Reason> {
    let mut reasons = vec![Reason::new(format!("{} is there", finding.key), Some(&finding.at))];
    let inert = finding.never.iter().filter(|never| never.whole);
    reasons.extend(inert.map(|never| Reason::new(format!("it takes no effect: {}", never.why), Some(&never.at))));
    reasons
}

/// The values of a row that a measurement of ours corrects.
fn measured(finding: &Finding, ours: Option<&OurRow>) -> BTreeMap<u32, u64> {
    let value = |it: &crate::patch::report::Difference| {
        let measured = ours.is_some_and(|ours| ours.is_measured(it.world_size));
        it.theirs.and(it.ours).filter(|_| measured).map(|bytes| (it.world_size, bytes))
    };
    finding.differences.iter().filter_map(value).collect()
}

/// Every reason not to edit that the user did not take upon himself.
fn objections(
    finding: &Finding,
    record: &PatchRecord,
    ours: Option<&OurRow>,
    card: &Card,
    options: &Options,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Some(table) = &record.table {
        let lists = table.row == PatchRow::WorldSizes;
        match ours.filter(|ours| lists || !ours.row.is_empty()) {
            None => {
                let why =
                    format!("our database has no value of this kind for {}, so there is nothing to write", card.id);
                return vec![Reason::new(why, None)];
            }
            Some(ours) if !options.allow_guessed && finding.status != Status::Differs => {
                reasons.extend(doubts(ours, table.other_kernel.as_deref()));
            }
            Some(_) => {}
        }
    } else if !options.allow_guessed {
        let why = "nobody measured what is behind this gate on this card; --allow-guessed opens it all the same";
        reasons.push(Reason::new(why, Some(&finding.at)));
    }
    if !options.force {
        let inert = finding.never.iter().filter(|never| never.whole);
        reasons.extend(inert.map(|never| {
            Reason::new(format!("it would not help: {}; --force writes it all the same", never.why), Some(&never.at))
        }));
    }
    reasons
}

/// Why a value of ours is no more than a guess here.
fn doubts(ours: &OurRow, other_kernel: Option<&str>) -> Option<Reason> {
    let allow = "--allow-guessed writes it all the same";
    if let Some(kernel) = other_kernel {
        let why = format!("our value is for another kernel than theirs ({kernel}), so it is a guess here; {allow}");
        return Some(Reason::new(why, None));
    }
    let origin = ours.origins.values().find(|origin| !origin.kind().counts_when_strict())?;
    let why = format!("our value is {}: nobody checked it on this card; {allow}", origin.kind());
    Some(Reason::new(why, Some(&origin.to_string())))
}

/// A row makes the code reach the next table. Where that lookup would crash, both rows are written or none. A row that is
/// not reached without the one before is not written alone.
fn follow(all: &mut [Decided], report: &Report, records: &[&PatchRecord], options: &Options) {
    for index in 0..all.len() {
        let behind = records[index].table.as_ref().and_then(|table| table.reached_after.as_deref());
        let Some(first) = behind.and_then(|id| all.iter().position(|it| it.step.id == id)) else { continue };
        let (verdict, finding) = (all[index].step.verdict, &report.findings[index]);
        if all[first].step.verdict == Verdict::Edit {
            if verdict != Verdict::Edit {
                lead(all, (first, index), finding, options);
            }
        } else if verdict == Verdict::Edit && report.findings[first].status == Status::Missing {
            let named_anyway = options.force && options.only.contains(&finding.id);
            if let Some(why) = finding.not_reached.as_deref().filter(|_| !named_anyway) {
                all[index].step.verdict = Verdict::Refused;
                all[index].step.reasons.push(Reason::new(format!("it would not be reached: {why}"), None));
            }
        }
    }
}

/// The row of the first table is written: so is that of the second where the lookup would crash without it.
fn lead(all: &mut [Decided], (first, second): (usize, usize), finding: &Finding, options: &Options) {
    let crash = finding.status == Status::Missing && finding.effect == Some(Effect::WouldCrash);
    if !crash && finding.cannot_tell.is_none() {
        return;
    }
    let place = finding.effect_at.as_deref();
    let lead = format!("the row of {} would lead to {}", all[first].step.place, records_place(finding));
    let guess = all[second].ours.as_ref().is_none_or(|ours| ours.is_guess() && !options.allow_guessed);
    if crash && !guess {
        all[second].step.verdict = Verdict::Edit;
        all[second].step.reasons = vec![Reason::new(format!("{lead}, which would crash without a row"), place)];
    } else {
        let what = if crash { "would crash and cannot be fixed with it" } else { "cannot be judged" };
        all[first].step.verdict = Verdict::Refused;
        all[first].step.reasons.push(Reason::new(format!("{lead}, which {what}"), place));
    }
}

/// The table's name, or the record's where the source could not be read.
fn records_place(finding: &Finding) -> &str {
    if finding.place.is_empty() { &finding.id } else { &finding.place }
}
