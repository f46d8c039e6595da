//! One installation and one GPU against the records.

use std::collections::BTreeSet;

use capdb::record::PatchRecord;
use capdb::resolve::RecordError;

use super::card::Card;
use super::judge::judge;
use super::release::Release;
use super::report::{Effect, Finding, Report, Status};

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
    // A file that only other releases have holds nothing that could be judged here.
    let is_here = |record: &&&PatchRecord| file(record).is_some_and(|file| release.root.join(file).exists());
    let not_judged: BTreeSet<&str> = others
        .iter()
        .filter(|record| fitting.is_empty() || is_here(record))
        .map(|record| record.feature.as_str())
        .filter(|feature| !judged.contains(feature))
        .collect();
    let untold = findings.iter().filter(|finding| finding.status == Status::CannotTell).count();
    Ok(Report {
        project: release.project.to_string(),
        version: release.version.clone(),
        gpu: card.id.clone(),
        arch: card.arch.clone(),
        compute_capability: format!("{}.{}", card.major, card.minor),
        multicast: card.multicast,
        topology: card.topology.map(|topology| topology.to_string()),
        given: card.given.clone(),
        gaps: findings.iter().filter(|finding| finding.is_gap()).count(),
        // A release that no record covers at all is unknown as a whole.
        cannot_tell: if fitting.is_empty() { not_judged.len().max(1) } else { untold },
        not_judged: not_judged.into_iter().map(str::to_owned).collect(),
        findings,
    })
}

/// The file that a record is about.
fn file(record: &PatchRecord) -> Option<&str> {
    let table = record.table.as_ref().map(|table| table.file.as_str());
    table.or(record.gate.as_ref().map(|gate| gate.file.as_str()))
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
