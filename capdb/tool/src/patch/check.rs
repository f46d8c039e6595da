//! One installation and one GPU against the records.

use std::collections::BTreeSet;

use capdb::record::{EvidenceKind, PatchCondition, PatchGate, PatchRecord, PatchRow, PatchTable};
use capdb::resolve::RecordError;

use super::card::{Card, OurRow, Row};
use super::literal::Literal;
use super::python::{Source, SourceError};
use super::release::Release;
use super::report::{Difference, Effect, Finding, Never, Ours, Report, Status, size_text};
use super::table::Table;
use super::{behaviour, condition, gate};

/// Reads every place that the records name for this release. A place that does not have the recorded shape is reported as
/// such; only a broken record of ours is an error.
pub fn check(release: &Release, card: &Card, records: &[PatchRecord]) -> Result<Report, RecordError> {
    let (fitting, others): (Vec<_>, Vec<_>) = records
        .iter()
        .filter(|record| record.project == release.project)
        .partition(|record| record.versions.matches(&release.semver));
    let mut findings = Vec::new();
    for record in &fitting {
        findings.push(judge(release, card, record)?);
    }
    for (index, record) in fitting.iter().enumerate() {
        let first = record.table.as_ref().and_then(|table| table.reached_after.as_deref());
        let before = first.and_then(|id| findings.iter().find(|finding| finding.id == id));
        findings[index].not_reached = before.and_then(stops);
    }
    let judged: BTreeSet<&str> = fitting.iter().map(|record| record.feature.as_str()).collect();
    let not_judged: BTreeSet<&str> =
        others.iter().map(|record| record.feature.as_str()).filter(|feature| !judged.contains(feature)).collect();
    let untold = findings.iter().filter(|finding| finding.status == Status::CannotTell).count();
    Ok(Report {
        project: release.project.to_string(),
        version: release.version.clone(),
        gpu: card.id.clone(),
        arch: card.arch.clone(),
        compute_capability: format!("{}.{}", card.major, card.minor),
        multicast: card.multicast,
        topology: card.topology.map(|topology| topology.to_string()),
        gaps: findings.iter().filter(|finding| finding.is_gap()).count(),
        // A release that no record covers at all is unknown as a whole.
        cannot_tell: if fitting.is_empty() { not_judged.len().max(1) } else { untold },
        not_judged: not_judged.into_iter().map(str::to_owned).collect(),
        findings,
    })
}

/// Why the table behind this one is not looked up.
fn stops(before: &Finding) -> Option<String> {
    let place = before.effect_at.as_deref().unwrap_or(&before.at);
    match (before.status, before.effect) {
        (Status::Missing, Some(Effect::WouldCrash)) => {
            Some(format!("the missing row of {} ends the start before  ({place})", before.place))
        }
        (Status::Missing, Some(_)) => {
            Some(format!("the missing row of {} turns the feature off before  ({place})", before.place))
        }
        _ => before.never.iter().find(|never| never.whole).map(|never| format!("{}  ({})", never.why, never.at)),
    }
}

fn judge(release: &Release, card: &Card, record: &PatchRecord) -> Result<Finding, RecordError> {
    let mut finding = blank(record);
    let ours = match record.table.as_ref().and_then(|table| table.database) {
        Some(value) => card.ours(value)?,
        None => None,
    };
    let read = match (&record.table, &record.gate) {
        (Some(table), _) => judge_table(release, card, table, ours, &mut finding),
        (None, Some(gate)) => judge_gate(release, card, gate, &mut finding),
        (None, None) => Ok(()),
    };
    let read = read.and_then(|()| {
        record.conditions.iter().try_for_each(|condition| overrule(release, card, condition, &mut finding))
    });
    if let Err(error) = read {
        finding = Finding { cannot_tell: Some(error.to_string()), status: Status::CannotTell, ..blank(record) };
    } else if finding.is_gap() {
        finding.help.clone_from(&record.help);
    }
    Ok(finding)
}

fn blank(record: &PatchRecord) -> Finding {
    Finding {
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
        help: Vec::new(),
        cannot_tell: None,
    }
}

fn judge_table(
    release: &Release,
    card: &Card,
    shape: &PatchTable,
    ours: Option<OurRow>,
    finding: &mut Finding,
) -> Result<(), SourceError> {
    let source = Source::read(&release.root, &shape.file)?;
    let lookup = Source::read(&release.root, &shape.lookup)?;
    let table = Table::read(&source, shape)?;
    let key = card.key(shape.key);
    finding.place.clone_from(&shape.name);
    finding.key = match &key {
        Literal::Text(text) => format!("\"{text}\""),
        Literal::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    // Read for every GPU, so that an unknown shape is noticed on a covered one too.
    let behaviour = behaviour::read(&lookup, &shape.name, card.major)?;
    if let Some((row, line)) = table.row(&key) {
        finding.at = format!("{}:{line}", source.path);
        finding.theirs = Some(row.clone());
        compare(row, ours.as_ref(), shape, finding);
        other_limits(&lookup, shape, row, finding);
    } else {
        finding.at = format!("{}:{}", source.path, table.line);
        finding.status = Status::Missing;
        finding.effect = Some(behaviour.effect);
        finding.effect_at = Some(behaviour.at);
        finding.effect_text = Some(match &shape.default_means {
            Some(means) if behaviour.effect == Effect::SilentFallback => format!("{}: {means}", behaviour.what),
            _ => behaviour.what,
        });
    }
    finding.ours = ours.map(|ours| Ours { evidence: evidence(&ours), row: ours.row });
    Ok(())
}

/// Each distinct evidence of a row, with its place.
fn evidence(ours: &OurRow) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for origin in ours.origins.values() {
        let source = origin.evidence.as_ref().map_or(String::new(), |evidence| format!(" by {}", evidence.source));
        let text = format!("{}{source}, {origin}", origin.kind());
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// Differences, and whether they are a fault: only a value that was measured for the same kernel can convict another.
fn compare(row: &Row, ours: Option<&OurRow>, shape: &PatchTable, finding: &mut Finding) {
    let Some(ours) = ours else { return };
    let sizes: BTreeSet<u32> = row.keys().chain(ours.row.keys()).copied().collect();
    let pair = |size: u32| (row.get(&size).copied(), ours.row.get(&size).copied());
    finding.differences = sizes
        .into_iter()
        .filter(|size| pair(*size).0 != pair(*size).1)
        .map(|world_size| Difference { world_size, theirs: pair(world_size).0, ours: pair(world_size).1 })
        .collect();
    if finding.differences.is_empty() {
        return;
    }
    let measured = finding.differences.iter().any(|difference| {
        let origin = ours.origins.get(&difference.world_size);
        difference.theirs.is_some() && origin.is_some_and(|origin| origin.kind() == EvidenceKind::Measured)
    });
    match (&shape.other_kernel, measured) {
        (Some(kernel), _) => {
            finding.difference_note = Some(format!("no fault: their limit is for another kernel ({kernel})"));
        }
        (None, true) => finding.status = Status::Differs,
        (None, false) => {
            finding.difference_note = Some("no fault: ours was not measured, so it cannot correct theirs".to_owned());
        }
    }
}

/// Entries that another limit overrules: `max` raises them, `min` cuts them.
fn other_limits(lookup: &Source, shape: &PatchTable, row: &Row, finding: &mut Finding) {
    if shape.row == PatchRow::WorldSizes {
        return;
    }
    for raise in condition::raises(lookup, &shape.name) {
        let when = raise.when.map_or_else(String::new, |when| format!("where `{when}` holds, "));
        let why = format!("{when}every limit below {0} is raised to {0}", size_text(raise.limit));
        if row.values().any(|bytes| *bytes < raise.limit) {
            finding.never.push(Never { why, at: raise.at, whole: false });
        }
    }
    let Some((limit, at)) = condition::clip(lookup, &shape.name) else { return };
    for (ranks, bytes) in row.iter().filter(|(_, bytes)| **bytes > limit) {
        let why = format!(
            "{ranks} ranks: {} is cut to {}, the default of the other limit",
            size_text(*bytes),
            size_text(limit)
        );
        finding.never.push(Never { why, at: at.clone(), whole: false });
    }
}

fn judge_gate(release: &Release, card: &Card, shape: &PatchGate, finding: &mut Finding) -> Result<(), SourceError> {
    let source = Source::read(&release.root, &shape.file)?;
    let helpers = Source::read(&release.root, &shape.majors)?;
    let gate = gate::read(&source, &helpers, shape)?;
    finding.place = format!("`{}` in {}", gate.expression, gate.function);
    finding.at.clone_from(&gate.at);
    finding.key = format!("major {}", card.major);
    if gate.majors.iter().any(|(major, _)| *major == card.major) {
        return Ok(());
    }
    let passing: Vec<String> = gate.majors.iter().map(|(major, at)| format!("{major} ({at})")).collect();
    finding.status = Status::Missing;
    finding.effect = Some(Effect::OffSilently);
    finding.effect_at = Some(gate.at);
    finding.effect_text =
        Some(format!("only majors {} pass, whatever a flag or a model file says", passing.join(" and ")));
    Ok(())
}

/// Adds what switches the feature off on this card even with a row.
fn overrule(
    release: &Release,
    card: &Card,
    condition: &PatchCondition,
    finding: &mut Finding,
) -> Result<(), SourceError> {
    let source = Source::read(&release.root, &condition.file)?;
    let node = condition::find(&source, condition)?;
    if card.has(condition.needs) == Some(false) {
        let scope = condition.above_world_size.map(|size| format!("above {size} ranks: ")).unwrap_or_default();
        let lead = if finding.status == Status::Missing { "even with a row: " } else { "" };
        let why = format!("{scope}{lead}{} has no {}, and then {}", card.id, words(condition), condition.effect);
        finding.never.push(Never { why, at: source.at(node), whole: condition.above_world_size.is_none() });
    }
    Ok(())
}

fn words(condition: &PatchCondition) -> String {
    condition.needs.word().replace('_', " ")
}
