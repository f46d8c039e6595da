//! Ladders that differ, as rows: algorithms by range of messages, times by size.

use std::collections::BTreeSet;

use capdb::quantity::Size;
use capdb::record::{AlgorithmId, Dtype, Evidence, Ladder, MessageTime, Rung, Topology};
use serde_json::Value;

/// Two lists of ladders side by side: rows for each that differs, and how many do not. `None` where a side is not a list of
/// ladders, or has two for the same messages, so that no row could say which of them changed.
pub(super) fn rows(old: Option<&Value>, new: Option<&Value>) -> Option<Vec<String>> {
    let (old, new) = (read(old)?, read(new)?);
    let added = new.iter().map(key).filter(|own| !old.iter().any(|ladder| key(ladder) == *own));
    let keys: Vec<Key> = old.iter().map(key).chain(added).collect();
    let (mut rows, mut unchanged) = (Vec::new(), 0);
    for own in &keys {
        let (old, new) = (find(&old, own), find(&new, own));
        if old == new {
            unchanged += 1;
        } else {
            rows.push(title(own, old, new));
            rows.extend(contents(old, new).into_iter().map(|row| format!("  {row}")));
        }
    }
    // The first ladder that fits a message is taken, so the order may matter.
    if rows.is_empty() && old != new {
        rows.push("the same ladders in another order".to_owned());
    }
    rows.extend(count(unchanged, "ladder"));
    (!keys.is_empty()).then_some(rows)
}

fn read(value: Option<&Value>) -> Option<Vec<Ladder>> {
    let ladders: Vec<Ladder> = value.map_or(Some(Vec::new()), |value| serde_json::from_value(value.clone()).ok())?;
    let keys: BTreeSet<Key> = ladders.iter().map(key).collect();
    (keys.len() == ladders.len()).then_some(ladders)
}

/// Which messages a ladder is for.
type Key = (u32, Topology, Option<Dtype>);

fn key(ladder: &Ladder) -> Key {
    (ladder.world_size, ladder.topology, ladder.dtype)
}

fn find<'a>(ladders: &'a [Ladder], own: &Key) -> Option<&'a Ladder> {
    ladders.iter().find(|ladder| key(ladder) == *own)
}

/// `2 ranks on nvswitch, bf16: measured h200-tune → measured site-tune`.
fn title((world_size, topology, dtype): &Key, old: Option<&Ladder>, new: Option<&Ladder>) -> String {
    let dtype = dtype.map_or_else(|| "every type".to_owned(), |dtype| dtype.to_string());
    let rests_on = |ladder: &Ladder| match &ladder.evidence {
        Some(own) => format!("{} {}", own.kind, own.source),
        None => "evidence of the list".to_owned(),
    };
    let sides = match (old.map(rests_on), new.map(rests_on)) {
        (Some(old), Some(new)) if old == new => new,
        (Some(old), Some(new)) => format!("{old} → {new}"),
        (Some(old), None) => format!("removed, {old}"),
        (None, new) => format!("new, {}", new.unwrap_or_default()),
    };
    format!("{world_size} ranks on {topology}, {dtype}: {sides}")
}

fn contents(old: Option<&Ladder>, new: Option<&Ladder>) -> Vec<String> {
    let side = |of: fn(&Ladder) -> &[Rung]| (old.map_or(&[][..], of), new.map_or(&[][..], of));
    let mut rows = rungs("", side(|ladder| &ladder.ladder));
    rows.extend(rungs("fused, ", side(|ladder| &ladder.fused)));
    let of = |ladder: Option<&Ladder>| ladder.map(|ladder| ladder.times.clone()).unwrap_or_default();
    rows.extend(times(&of(old), &of(new)));
    let evidence = |ladder: Option<&'_ Ladder>| ladder.and_then(|ladder| ladder.evidence.clone());
    if let (Some(old), Some(new)) = (evidence(old), evidence(new)) {
        rows.extend(circumstances(&old, &new));
    }
    rows
}

/// What a range of messages takes before and after. Ranges are as wide as both sides say one thing each.
struct Range {
    above: Option<Size>,
    up_to: Size,
    old: Option<AlgorithmId>,
    new: Option<AlgorithmId>,
}

fn rungs(name: &str, (old, new): (&[Rung], &[Rung])) -> Vec<String> {
    let ranges = ranges(old, new);
    let (same, different): (Vec<&Range>, Vec<&Range>) = ranges.iter().partition(|range| range.old == range.new);
    let word = |algorithm: Option<AlgorithmId>| algorithm.map_or_else(|| "no rung".to_owned(), |id| id.to_string());
    let row = |range: &&Range| {
        let above = range.above.map_or_else(String::new, |size| format!("above {size} "));
        format!("{name}{above}up to {}: {} → {}", range.up_to, word(range.old), word(range.new))
    };
    let mut rows: Vec<String> = different.iter().map(row).collect();
    if rows.is_empty() && old != new {
        rows.push(format!("{name}other rungs that choose the same"));
    }
    rows.extend(count(same.len(), &format!("{name}range")));
    rows
}

fn ranges(old: &[Rung], new: &[Rung]) -> Vec<Range> {
    let bounds: BTreeSet<Size> = old.iter().chain(new).map(|rung| rung.up_to).collect();
    let choice = |rungs: &[Rung], size| rungs.iter().find(|rung| size <= rung.up_to).map(|rung| rung.algorithm);
    let mut ranges: Vec<Range> = Vec::new();
    for up_to in bounds {
        let (old, new) = (choice(old, up_to), choice(new, up_to));
        match ranges.last_mut() {
            Some(last) if (last.old, last.new) == (old, new) => last.up_to = up_to,
            last => {
                let above = last.map(|last| last.up_to);
                ranges.push(Range { above, up_to, old, new });
            }
        }
    }
    ranges
}

fn times(old: &[MessageTime], new: &[MessageTime]) -> Vec<String> {
    let at = |times: &[MessageTime], size| times.iter().find(|time| time.bytes == size).map(|time| time.nanoseconds);
    let both: Vec<(Size, u32, u32)> =
        new.iter().filter_map(|time| Some((time.bytes, at(old, time.bytes)?, time.nanoseconds))).collect();
    let different = both.iter().filter(|(_, old, new)| old != new);
    let mut rows: Vec<String> = different.map(|(size, old, new)| format!("time of {size}: {old} → {new} ns")).collect();
    let same = both.len() - rows.len();
    let alone = |times: &[MessageTime], others: &[MessageTime]| -> Vec<MessageTime> {
        times.iter().filter(|time| at(others, time.bytes).is_none()).cloned().collect()
    };
    rows.extend(span("times gone", &alone(old, new)));
    rows.extend(span("times new", &alone(new, old)));
    rows.extend(count(same, "time"));
    rows
}

/// `times new: 14 sizes from 1KiB to 1MiB, 3138 to 10511 ns`.
fn span(what: &str, times: &[MessageTime]) -> Option<String> {
    let (first, last) = (times.first()?, times.last()?);
    if times.len() == 1 {
        return Some(format!("{what}: {}, {} ns", first.bytes, first.nanoseconds));
    }
    let (sizes, nanoseconds) = (times.len(), format!("{} to {} ns", first.nanoseconds, last.nanoseconds));
    Some(format!("{what}: {sizes} sizes from {} to {}, {nanoseconds}", first.bytes, last.bytes))
}

/// Which parts differ of evidence whose kind and source stand in the title.
fn circumstances(old: &Evidence, new: &Evidence) -> Option<String> {
    let map = |evidence| serde_json::to_value(evidence).ok();
    let (old, new) = (map(old)?, map(new)?);
    let keys: BTreeSet<&String> = old.as_object()?.keys().chain(new.as_object()?.keys()).collect();
    let differ = |key: &&&String| !["kind", "source"].contains(&key.as_str()) && old.get(key) != new.get(key);
    let keys: Vec<&str> = keys.iter().filter(differ).map(|key| key.as_str()).collect();
    (!keys.is_empty()).then(|| format!("evidence differs in {}", keys.join(", ")))
}

fn count(number: usize, word: &str) -> Option<String> {
    (number > 0).then(|| format!("{number} {word}{} unchanged", if number == 1 { "" } else { "s" }))
}
