//! Tables of a release as sources and readings, each beside the reading that the database has.

use std::collections::BTreeMap;

use capdb::database::Database;
use capdb::record::{PatchGate, PatchRecord, PatchValue};
use capdb::resolve::Resolved;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::cited::{cited, fits, is_ours, same, suffix};
use super::{Place, Untold, UpstreamError, places};
use crate::patch::card::{Card, Row};
use crate::patch::gate;
use crate::patch::python::{Source, SourceError};
use crate::patch::release::Release;
use crate::patch::table::Table;
use crate::patch::text::size_text;

/// A release beside the database.
#[derive(Clone, Debug, Serialize)]
pub struct Import {
    pub project: String,
    pub version: String,
    /// Entries for `sources.yaml`.
    pub sources: BTreeMap<String, NewSource>,
    pub readings: Vec<NewReading>,
    pub untold: Vec<Untold>,
    /// Places that were read by a record which does not cover this release.
    pub beyond: Vec<String>,
}

/// An entry for `sources.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewSource {
    pub title: String,
    pub path: String,
    /// The database has it already.
    pub known: bool,
}

/// How a reading stands to the one that the database has from this project.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stands {
    Same {
        source: String,
    },
    Differs {
        source: String,
        value: Value,
    },
    /// For a kernel that the database has no values of; it keeps no reading of it here.
    OtherKernel,
    New,
}

/// A reading for one block of one architecture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewReading {
    pub arch: String,
    /// File of the record.
    pub file: String,
    /// `allreduce.symmetric_memory`.
    pub block: String,
    pub source: String,
    pub value: Value,
    /// `file:line` in the release.
    pub at: String,
    pub stands: Stands,
}

/// Reads every known place of a release and compares it with the readings of the database.
pub fn import(release: &Release, database: &Database, records: &[PatchRecord]) -> Result<Import, UpstreamError> {
    let mut all = Import {
        project: release.project.to_string(),
        version: release.version.clone(),
        sources: BTreeMap::new(),
        readings: Vec::new(),
        untold: Vec::new(),
        beyond: Vec::new(),
    };
    let cards = cards(database)?;
    for (feature, place) in places(release, records) {
        match one(release, database, &cards, &place) {
            Ok((source, readings)) if !readings.is_empty() => {
                if !place.covers {
                    all.beyond.push(place.record.id.clone());
                }
                all.sources.insert(readings[0].source.clone(), source);
                all.readings.extend(readings);
            }
            Ok(_) => {}
            Err(error) => {
                let (version, why) = (release.version.clone(), error.to_string());
                // A place of other releases alone need not be here.
                if place.covers || !matches!(error, SourceError::Missing(_)) {
                    all.untold.push(Untold { feature: feature.to_owned(), version, why });
                }
            }
        }
    }
    Ok(all)
}

/// An architecture: its card, its record, and the record's file.
pub struct Arch {
    pub card: Card,
    pub resolved: Resolved,
    file: String,
}

fn cards(database: &Database) -> Result<Vec<Arch>, UpstreamError> {
    let arch = |(id, entry): (&String, &capdb::assembly::ArchEntry)| {
        let card = Card::new(database, id)
            .map_err(|error| capdb::database::LookupError::Broken { id: id.clone(), failure: error.to_string() })?;
        Ok(Arch { card, resolved: database.record(id)?, file: entry.file.clone() })
    };
    database.index().archs.iter().map(arch).collect()
}

fn one(
    release: &Release,
    database: &Database,
    archs: &[Arch],
    place: &Place<'_>,
) -> Result<(NewSource, Vec<NewReading>), SourceError> {
    let record = place.record;
    let suffix = suffix(database, &record.evidence.source);
    let id = match &suffix {
        Some(suffix) => format!("{}-{}-{suffix}", release.project, release.version),
        None => format!("{}-{}-{}", release.project, release.version, record.id),
    };
    let title = database.index().sources.sources.get(&record.evidence.source).map(|source| source.title.clone());
    let path = record.table.as_ref().map(|table| &table.file).or(record.gate.as_ref().map(|gate| &gate.file));
    let source = NewSource {
        title: title.unwrap_or_else(|| record.feature.clone()),
        path: path.cloned().unwrap_or_default(),
        known: database.index().sources.sources.contains_key(&id),
    };
    let other_kernel = record.table.as_ref().is_some_and(|table| table.other_kernel.is_some());
    let mut readings = Vec::new();
    for (arch, block, value, at) in values(release, archs, record)? {
        let cited = cited(arch, &block, &value, |id| fits(database, release, id, suffix.as_deref()));
        let stands = match cited {
            Some(cited) if same(&cited.value, &value) => Stands::Same { source: cited.source },
            // The citation is of another table in the same file.
            Some(cited) if other_kernel && !cited.is_reading => Stands::OtherKernel,
            Some(cited) => Stands::Differs { source: cited.source, value: cited.value },
            None if is_nothing(&value) || is_ours(arch, &block, &value) => continue,
            None if other_kernel => Stands::OtherKernel,
            None => Stands::New,
        };
        let (arch, file) = (arch.card.id.clone(), arch.file.clone());
        readings.push(NewReading { arch, file, block, source: id.clone(), value, at, stands });
    }
    Ok((source, readings))
}

/// Architecture, block, value and place of everything that a record reads.
fn values<'a>(
    release: &Release,
    archs: &'a [Arch],
    record: &PatchRecord,
) -> Result<Vec<(&'a Arch, String, Value, String)>, SourceError> {
    let mut found = Vec::new();
    if let Some((shape, ours)) = record.table.as_ref().and_then(|table| Some((table, table.database?))) {
        let table = Table::read(&Source::read(&release.root, &shape.file)?, shape)?;
        let (block, field) = block(ours);
        for arch in archs {
            let row = table.row(&arch.card.key(shape.key));
            let value = value(ours, row.map(|(row, _)| row));
            let at = format!("{}:{}", shape.file, row.map_or(table.line, |(_, line)| line));
            found.push((arch, block.to_owned(), json!({ field: value }), at));
        }
    }
    if let Some(shape) = &record.gate {
        for arch in archs {
            let (support, at) = support(release, shape, &arch.card)?;
            found.push((arch, "fusions.allreduce_residual_rmsnorm".to_owned(), json!({ "support": support }), at));
        }
    }
    Ok(found)
}

fn support(release: &Release, shape: &PatchGate, card: &Card) -> Result<(&'static str, String), SourceError> {
    let source = Source::read(&release.root, &shape.file)?;
    let helpers = shape.majors.as_ref().map(|file| Source::read(&release.root, file)).transpose()?;
    let gate = gate::read(&source, helpers.as_ref(), shape)?;
    let passes = gate.passing.iter().any(|(pass, _)| pass.lets_through(card));
    Ok((if passes { "native" } else { "absent" }, gate.at))
}

const fn block(value: PatchValue) -> (&'static str, &'static str) {
    match value {
        PatchValue::SymmetricMemoryMaxMessage => ("allreduce.symmetric_memory", "max_message"),
        PatchValue::OneShotMaxMessage => ("allreduce.one_shot", "max_message"),
        PatchValue::TwoShotMaxMessage => ("allreduce.two_shot", "max_message"),
        PatchValue::MultimemWorldSizes => ("allreduce.multimem", "world_sizes"),
        PatchValue::FusionMaxMessage => ("fusions.allreduce_residual_rmsnorm", "max_message"),
    }
}

/// A row in the form of the database; an empty one where there is no row.
fn value(ours: PatchValue, row: Option<&Row>) -> Value {
    if ours == PatchValue::MultimemWorldSizes {
        return Value::from(row.map(|row| row.keys().copied().collect::<Vec<u32>>()).unwrap_or_default());
    }
    let size = |bytes: u64| match size_text(bytes) {
        text if text.ends_with("iB") => Value::from(text),
        _ => Value::from(bytes),
    };
    let entries = row.into_iter().flatten().map(|(ranks, bytes)| (ranks.to_string(), size(*bytes)));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// No row, or a gate that is closed: worth saying only where the database says something.
fn is_nothing(value: &Value) -> bool {
    value.as_object().into_iter().flat_map(Map::values).all(|it| match it {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        other => other == "absent",
    })
}

impl Import {
    /// 0 the database says the same; 1 something is new or differs; 2 a place cannot be read.
    pub fn exit_code(&self) -> u8 {
        let known = |it: &NewReading| matches!(it.stands, Stands::Same { .. } | Stands::OtherKernel);
        let same = self.readings.iter().all(known);
        match (self.untold.is_empty() && !self.readings.is_empty(), same) {
            (false, _) => 2,
            (true, false) => 1,
            (true, true) => 0,
        }
    }
}
