//! From decisions to texts: every edit is made in memory and read back before anything is written.

use std::collections::BTreeMap;

use capdb::record::{PatchGate, PatchRecord, PatchTable};
use capdb::resolve::RecordError;

use super::decide::{Decided, Options, Step, Verdict, decide};
use crate::patch::card::{Card, OurRow, Row};
use crate::patch::check::check;
use crate::patch::edit::{self, FileEdit, Splice, splice};
use crate::patch::gate;
use crate::patch::python::{self, Source, SourceError};
use crate::patch::release::Release;
use crate::patch::table::Table;

/// What would be done.
#[derive(Clone, Debug)]
pub struct Plan {
    pub project: String,
    pub version: String,
    pub gpu: String,
    pub steps: Vec<Step>,
    pub files: Vec<FileEdit>,
}

/// Why no plan can be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "no record covers {project} {version}: its tables were never read, and nothing is guessed; `capdb patch list` shows the known releases"
    )]
    UnknownRelease { project: String, version: String },
    #[error("there is no place `{id}` in {project} {version}; known are {known}")]
    UnknownPlace { id: String, project: String, version: String, known: String },
    #[error("cannot edit: {0}")]
    Source(SourceError),
    #[error(
        "{path}: the edited text does not read back as intended ({why}), so nothing was written; this is a fault of capdb"
    )]
    ReadBack { path: String, why: String },
    #[error("the database is broken: {0}")]
    Record(RecordError),
}

// The messages hold their causes'; as sources these would be printed twice.
impl From<SourceError> for PlanError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<RecordError> for PlanError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl Plan {
    /// 0 there are edits; 1 refused or nothing to do; 2 a place that was asked for cannot be judged.
    pub fn exit_code(&self) -> u8 {
        let any = |verdict| self.steps.iter().any(|step| step.verdict == verdict);
        match (any(Verdict::CannotTell), self.files.is_empty()) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }
}

/// Decides, edits in memory, and reads the result back. Writes nothing.
pub fn plan(release: &Release, card: &Card, records: &[PatchRecord], options: &Options) -> Result<Plan, PlanError> {
    let report = check(release, card, records)?;
    let (project, version) = (report.project.clone(), report.version.clone());
    if report.findings.is_empty() {
        return Err(PlanError::UnknownRelease { project, version });
    }
    let fitting: Vec<&PatchRecord> =
        report.findings.iter().filter_map(|finding| records.iter().find(|record| record.id == finding.id)).collect();
    if let Some(id) = options.only.iter().find(|id| fitting.iter().all(|record| record.id != **id)) {
        let known = fitting.iter().map(|record| record.id.as_str()).collect::<Vec<_>>().join(", ");
        return Err(PlanError::UnknownPlace { id: id.clone(), project, version, known });
    }
    let mut decided = decide(&report, &fitting, card, options)?;
    let named = !options.only.is_empty();
    let blocked = decided.iter().any(|it| match it.step.verdict {
        Verdict::CannotTell => true,
        Verdict::Refused => named,
        _ => false,
    });
    let files = if blocked { Vec::new() } else { edits(release, card, &fitting, &mut decided)? };
    let steps = decided.into_iter().map(|it| it.step).collect();
    Ok(Plan { project, version, gpu: card.id.clone(), steps, files })
}

/// The files with their edits, several of one file together.
fn edits(
    release: &Release,
    card: &Card,
    records: &[&PatchRecord],
    decided: &mut [Decided],
) -> Result<Vec<FileEdit>, PlanError> {
    let mut pieces: BTreeMap<&str, (Vec<Splice>, Vec<&PatchRecord>)> = BTreeMap::new();
    for (record, it) in records.iter().zip(decided.iter_mut()).filter(|(_, it)| it.step.verdict == Verdict::Edit) {
        let (file, splices) = match (&record.table, &record.gate) {
            (Some(table), _) => (&table.file, for_table(release, card, table, it)?),
            (None, Some(gate)) => (&gate.file, for_gate(release, card, gate)?),
            (None, None) => continue,
        };
        let added: Vec<&str> = splices.iter().map(|it| it.text.trim()).filter(|text| *text != ",").collect();
        it.step.adds = Some(added.join("; "));
        let entry = pieces.entry(file.as_str()).or_default();
        entry.0.extend(splices);
        entry.1.push(record);
    }
    let mut files = Vec::new();
    for (path, (splices, records)) in pieces {
        let (file, bytes) = python::read(&release.root, path)?;
        let source = Source::parse(path, bytes)?;
        let after = splice(source.whole(), splices);
        read_back(release, card, path, &source, &after, &records)?;
        let ids = records.iter().map(|record| record.id.clone()).collect();
        files.push(FileEdit { path: path.to_owned(), file, before: source.whole().to_owned(), after, records: ids });
    }
    Ok(files)
}

fn for_table(release: &Release, card: &Card, table: &PatchTable, it: &Decided) -> Result<Vec<Splice>, SourceError> {
    let source = Source::read(&release.root, &table.file)?;
    let key = card.key(table.key);
    if !it.corrections.is_empty() {
        return edit::correct(&source, table, &key, &it.corrections);
    }
    let empty = Row::new();
    let row = it.ours.as_ref().map_or(&empty, |ours| &ours.row);
    edit::insert(&source, table, &key, row, &remark(card, it.ours.as_ref()))
}

/// What stands behind an added row: where its value comes from, in ASCII, on one line.
fn remark(card: &Card, ours: Option<&OurRow>) -> String {
    let evidence = ours.map(OurRow::evidence).unwrap_or_default();
    let text = match evidence.first() {
        Some(first) => format!("capdb, {}: {first}", card.id),
        None => format!("capdb, {}: none", card.id),
    };
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

fn for_gate(release: &Release, card: &Card, shape: &PatchGate) -> Result<Vec<Splice>, SourceError> {
    let read = |file: &Option<String>| file.as_ref().map(|file| Source::read(&release.root, file)).transpose();
    let source = Source::read(&release.root, &shape.file)?;
    let (helpers, attributes) = (read(&shape.majors)?, read(&shape.attributes)?);
    let gate = gate::read(&source, helpers.as_ref(), shape)?;
    let helpers = helpers.as_ref().map(|helpers| (helpers, attributes.as_ref()));
    edit::open(&source, helpers, shape, &gate, card)
}

/// The edited text is Python, has the new rows, and has every other row as it was.
fn read_back(
    release: &Release,
    card: &Card,
    path: &str,
    before: &Source,
    after: &str,
    records: &[&PatchRecord],
) -> Result<(), PlanError> {
    let fault = |why: String| PlanError::ReadBack { path: path.to_owned(), why };
    let edited = Source::parse(path, after.as_bytes().to_vec()).map_err(|error| fault(error.to_string()))?;
    for record in records {
        if let Some(shape) = &record.table {
            let (old, new) =
                (Table::read(before, shape)?, Table::read(&edited, shape).map_err(|e| fault(e.to_string()))?);
            let key = card.key(shape.key);
            let others = |table: &Table| {
                let rows = table.rows.iter().filter(|(known, ..)| *known != key);
                rows.map(|(known, row, _)| (known.clone(), row.clone())).collect::<Vec<_>>()
            };
            if others(&old) != others(&new) {
                return Err(fault(format!("another row of {} changed", shape.name)));
            }
            if !is_wanted(card, shape, old.row(&key).map(|(row, _)| row), new.row(&key).map(|(row, _)| row))? {
                return Err(fault(format!("the row of {} is not the intended one", shape.name)));
            }
        }
        if let Some(shape) = &record.gate {
            let helpers = shape.majors.as_ref().map(|file| Source::read(&release.root, file)).transpose()?;
            let gate = gate::read(&edited, helpers.as_ref(), shape).map_err(|error| fault(error.to_string()))?;
            if !gate.passing.iter().any(|(pass, _)| pass.lets_through(card)) {
                return Err(fault(format!("{} does not pass", card.id)));
            }
        }
    }
    Ok(())
}

/// Whether the row is ours: all of it where it is new, the measured values where it was corrected.
fn is_wanted(card: &Card, shape: &PatchTable, old: Option<&Row>, new: Option<&Row>) -> Result<bool, RecordError> {
    let ours = shape.database.map(|value| card.ours(value)).transpose()?.flatten();
    let expected: Option<Row> = match (old, ours) {
        (None, ours) => ours.map(|ours| ours.row),
        (Some(old), Some(ours)) => {
            let value = |(ranks, bytes): (&u32, &u64)| {
                let measured = ours.row.get(ranks).filter(|_| ours.is_measured(*ranks));
                (*ranks, measured.copied().unwrap_or(*bytes))
            };
            Some(old.iter().map(value).collect())
        }
        (Some(old), None) => Some(old.clone()),
    };
    Ok(new == expected.as_ref())
}
