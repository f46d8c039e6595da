//! One record against one installation and one GPU.

use std::collections::BTreeSet;

use capdb::record::{PatchCondition, PatchGate, PatchKernel, PatchKey, PatchRecord, PatchRow, PatchTable};
use capdb::resolve::RecordError;

use super::card::{Card, OurRow, Row};
use super::literal::Literal;
use super::python::{Source, SourceError};
use super::release::Release;
use super::report::{Difference, Effect, Finding, KnownPatch, Never, Ours, Status};
use super::table::Table;
use super::text::size_text;
use super::{behaviour, condition, gate};

/// How a reason begins that would hold after the gap is fixed, too.
const EVEN_WITH_A_ROW: &str = "even with a row: ";

/// What the source says at the place of a record. Source that does not have the recorded shape makes a finding that says so;
/// only a broken record of ours is an error.
pub fn judge(release: &Release, card: &Card, record: &PatchRecord) -> Result<Finding, RecordError> {
    let mut finding = Finding::blank(record);
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
    if let Some(kernel) = &record.kernel {
        behind(release, card, kernel, &mut finding);
    }
    if let Err(error) = read {
        finding =
            Finding { cannot_tell: Some(error.to_string()), status: Status::CannotTell, ..Finding::blank(record) };
    } else if finding.is_gap() {
        finding.help.clone_from(&record.help);
        if finding.status == Status::Missing {
            finding.known_patches = record.known_patches.iter().map(|what| outcome(what, card, &finding)).collect();
        }
    }
    Ok(finding)
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
    finding.key = match (shape.key, &key) {
        (PatchKey::CapabilityText, Literal::Text(text)) => format!("\"{text}\""),
        (PatchKey::CapabilityRanksNodes, Literal::Integer(number)) => format!("({number}, ranks, 1 node)"),
        (_, Literal::Integer(number)) => number.to_string(),
        _ => "any GPU".to_owned(),
    };
    // Read for every GPU, so that an unknown shape is noticed on a covered one too. What every GPU has cannot be missing.
    let behaviour = match shape.key {
        PatchKey::AnyGpu => None,
        _ => Some(behaviour::read(&lookup, &shape.name, card.major)?),
    };
    if let Some((row, line)) = table.row(&key) {
        finding.at = format!("{}:{line}", source.path);
        finding.theirs = Some(row.clone());
        compare(row, ours.as_ref(), shape, finding);
        other_limits(&lookup, shape, row, finding);
    } else if let Some(behaviour) = behaviour {
        finding.at = format!("{}:{}", source.path, table.line);
        finding.status = Status::Missing;
        finding.effect = Some(behaviour.effect);
        finding.effect_at = Some(behaviour.at);
        finding.effect_text = Some(match &shape.default_means {
            Some(means) if behaviour.effect == Effect::SilentFallback => format!("{}: {means}", behaviour.what),
            _ => behaviour.what,
        });
    }
    finding.ours = ours.map(|ours| Ours { evidence: ours.evidence(), row: ours.row });
    Ok(())
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
    let measured = finding
        .differences
        .iter()
        .any(|difference| difference.theirs.is_some() && ours.is_measured(difference.world_size));
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
    let helpers = shape.majors.as_ref().map(|file| Source::read(&release.root, file)).transpose()?;
    let gate = gate::read(&source, helpers.as_ref(), shape)?;
    finding.place = format!("`{}` in {}", gate.expression, gate.function);
    finding.at.clone_from(&gate.at);
    finding.key = match shape.terms.is_empty() {
        true => format!("{}.{}", card.major, card.minor),
        false => format!("major {}", card.major),
    };
    if gate.passing.iter().any(|(pass, _)| pass.lets_through(card)) {
        return Ok(());
    }
    let passing: Vec<String> = gate.passing.iter().map(|(pass, at)| format!("{pass} ({at})")).collect();
    let reach = match &shape.overridden_by {
        Some(way) => format!("; it only chooses a default: {way}"),
        None => ", whatever a flag or a model file says".to_owned(),
    };
    finding.status = Status::Missing;
    finding.effect = Some(Effect::OffSilently);
    finding.effect_at = Some(gate.at);
    finding.effect_text = Some(format!("only {} pass{reach}", passing.join(" and ")));
    Ok(())
}

/// Reads which majors the kernel behind a place is built for, where its package is installed here too.
fn behind(release: &Release, card: &Card, kernel: &PatchKernel, finding: &mut Finding) {
    let source = match Source::read(&release.root, &kernel.file) {
        Ok(source) => source,
        Err(SourceError::Missing(file)) => {
            finding.kernel =
                Some(format!("{} is not in this folder ({file}), so its majors were not read", kernel.name));
            return;
        }
        Err(error) => {
            finding.kernel = Some(format!("not read: {error}"));
            return;
        }
    };
    let function = source
        .nodes()
        .filter(|node| node.kind() == "function_definition")
        .find(|node| node.child_by_field_name("name").is_some_and(|name| source.text(name) == kernel.function));
    let majors = function.and_then(|function| gate::list_argument(&source, function, &kernel.argument));
    // Another release of another package: that it cannot be read says nothing against the place itself.
    let Some(majors) = majors.filter(|majors| !majors.is_empty()) else {
        let what = format!("`{}` of `{}` cannot be read in {}", kernel.argument, kernel.function, kernel.file);
        finding.kernel = Some(what);
        return;
    };
    let list = majors.iter().map(|(pass, _)| pass.to_string()).collect::<Vec<_>>().join(" and ");
    let at = majors[0].1.clone();
    finding.kernel = Some(format!("{} builds it for {list}  ({at})", kernel.name));
    if !majors.iter().any(|(pass, _)| pass.lets_through(card)) {
        let lead = if finding.status == Status::Missing { "even if it passed here: " } else { "" };
        let why = format!("{lead}{} builds the kernel for {list} only, and {}", kernel.name, kernel.effect);
        finding.never.push(Never { why, at, whole: true });
    }
}

/// What becomes of an edit that people are known to make.
fn outcome(what: &str, card: &Card, finding: &Finding) -> KnownPatch {
    let never = finding.never.iter().find(|never| never.whole);
    let (outcome, at) = match (finding.place.starts_with('`'), never) {
        (true, _) => {
            (format!("changes nothing: the feature stays off, since {} does not pass here", card.id), &finding.at)
        }
        (false, Some(never)) => {
            let why = never.why.strip_prefix(EVEN_WITH_A_ROW).unwrap_or(&never.why);
            (format!("the feature stays off: {why}"), &never.at)
        }
        (false, None) => ("nothing that was read here stops it; measure it".to_owned(), &finding.at),
    };
    KnownPatch { what: what.to_owned(), outcome, at: at.clone() }
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
        let lead = if finding.status == Status::Missing { EVEN_WITH_A_ROW } else { "" };
        let why = format!("{scope}{lead}{} has no {}, and then {}", card.id, words(condition), condition.effect);
        finding.never.push(Never { why, at: source.at(node), whole: condition.above_world_size.is_none() });
    }
    Ok(())
}

fn words(condition: &PatchCondition) -> String {
    condition.needs.word().replace('_', " ")
}
