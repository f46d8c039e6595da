//! A row of a dictionary: added at its end, or corrected in place.

use std::collections::BTreeMap;

use capdb::record::{PatchRow, PatchTable};
use tree_sitter::Node;

use super::{Splice, line_head, newline};
use crate::patch::card::Row;
use crate::patch::literal::Literal;
use crate::patch::python::{Source, SourceError, children};

/// Puts `key: row` behind the last row, in the form of the rows that are there. The remark becomes a comment where the row
/// has a line of its own.
pub fn insert(
    source: &Source,
    shape: &PatchTable,
    key: &Literal,
    row: &Row,
    remark: &str,
) -> Result<Vec<Splice>, SourceError> {
    let dictionary = dictionary(source, shape)?;
    let Some(last) = pairs(dictionary).last().copied() else {
        return Err(source.shape(dictionary, "the table is empty, so the form of its rows is unknown"));
    };
    let text = source.whole();
    let written = match shape.row {
        PatchRow::WorldSizes => list_text(source, last, row)?,
        form => sizes_text(source, dictionary, form, row),
    };
    let entry = format!("{}: {written}", key_text(source, last, key)?);
    let comma = comma_after(last);
    let end = comma.map_or(last.end_byte(), |comma| comma.end_byte());
    let indent = line_head(text, last.start_byte());
    if !indent.trim().is_empty() || indent.is_empty() {
        // Written on one line: `{9: [4, 6, 8]}`.
        let added = if comma.is_some() { format!(" {entry},") } else { format!(", {entry}") };
        return Ok(vec![Splice::insert(end, added)]);
    }
    let line = format!("{}{indent}{entry},", newline(text, end));
    let mut splices = Vec::new();
    if comma.is_none() {
        splices.push(Splice::insert(last.end_byte(), ","));
    }
    let rest = text[end..].find('\n').map_or(&text[end..], |stop| &text[end..end + stop]);
    let rest = rest.strip_suffix('\r').unwrap_or(rest);
    // Behind the comment that belongs to the last row; in front of a brace that closes on the same line.
    if rest.trim().is_empty() || rest.trim_start().starts_with('#') {
        splices.push(Splice::insert(end + rest.len(), format!("{line}  # {remark}")));
    } else {
        splices.push(Splice::insert(end, line));
    }
    Ok(splices)
}

/// Puts new values in place of those of a row, one for each world size.
pub fn correct(
    source: &Source,
    shape: &PatchTable,
    key: &Literal,
    values: &BTreeMap<u32, u64>,
) -> Result<Vec<Splice>, SourceError> {
    let dictionary = dictionary(source, shape)?;
    let mut row = None;
    for pair in pairs(dictionary) {
        let name = field(source, pair, "key")?;
        if source.evaluate(name)? == *key {
            row = Some(field(source, pair, "value")?);
        }
    }
    let row = row
        .filter(|row| row.kind() == "dictionary")
        .ok_or_else(|| source.shape(dictionary, "the row is not written out here, so its values cannot be replaced"))?;
    let mut splices = Vec::new();
    for pair in pairs(row) {
        let Literal::Integer(ranks) = source.evaluate(field(source, pair, "key")?)? else { continue };
        if let Some(bytes) = u32::try_from(ranks).ok().and_then(|ranks| values.get(&ranks)) {
            let value = field(source, pair, "value")?;
            splices.push(Splice { range: value.byte_range(), text: size(source, dictionary, shape.row, *bytes) });
        }
    }
    if splices.len() == values.len() {
        Ok(splices)
    } else {
        Err(source.shape(row, "a value to replace is not written out here"))
    }
}

/// The braces on the right of the table's assignment.
fn dictionary<'a>(source: &'a Source, shape: &PatchTable) -> Result<Node<'a>, SourceError> {
    let (_, assignment) = source.constant(shape.class.as_deref(), &shape.name)?;
    let right = assignment.child_by_field_name("right").filter(|node| node.kind() == "dictionary");
    right.ok_or_else(|| source.shape(assignment, "the dictionary is not written out on the right of the name"))
}

fn pairs(dictionary: Node<'_>) -> Vec<Node<'_>> {
    children(dictionary).into_iter().filter(|node| node.kind() == "pair").collect()
}

fn field<'a>(source: &Source, pair: Node<'a>, name: &str) -> Result<Node<'a>, SourceError> {
    pair.child_by_field_name(name).ok_or_else(|| source.shape(pair, "is not a `key: value` pair"))
}

/// The comma behind a row. Comments may stand between.
fn comma_after(pair: Node<'_>) -> Option<Node<'_>> {
    std::iter::successors(pair.next_sibling(), |node| node.next_sibling())
        .find(|node| node.kind() != "comment")
        .filter(|node| node.kind() == ",")
}

/// The key, in the quotes of the key next to it.
fn key_text(source: &Source, neighbour: Node<'_>, key: &Literal) -> Result<String, SourceError> {
    match key {
        Literal::Integer(number) => Ok(number.to_string()),
        Literal::Text(text) => {
            let known = source.text(field(source, neighbour, "key")?);
            let quote = if known.starts_with('\'') { '\'' } else { '"' };
            Ok(format!("{quote}{text}{quote}"))
        }
        _ => Err(source.shape(neighbour, "a row with such a key cannot be added")),
    }
}

/// `{2: 64 * MiB, 4: 32 * MiB}`.
fn sizes_text(source: &Source, table: Node<'_>, form: PatchRow, row: &Row) -> String {
    let entries: Vec<String> =
        row.iter().map(|(ranks, bytes)| format!("{ranks}: {}", size(source, table, form, *bytes))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// World sizes, as a list or a tuple like the row next to it.
fn list_text(source: &Source, neighbour: Node<'_>, row: &Row) -> Result<String, SourceError> {
    let list = row.keys().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match field(source, neighbour, "value")?.kind() {
        "tuple" if row.len() == 1 => Ok(format!("({list},)")),
        "tuple" => Ok(format!("({list})")),
        "list" => Ok(format!("[{list}]")),
        other => Err(source.shape(neighbour, format!("a row like this {other} cannot be added"))),
    }
}

/// A size as the module writes sizes: with its own name for 2^20 where it has one in front of the table.
fn size(source: &Source, table: Node<'_>, form: PatchRow, bytes: u64) -> String {
    if form == PatchRow::Mebibytes {
        return mebibytes(bytes);
    }
    let named = |name: &str, value: i64| match source.constant(None, name) {
        Ok((Literal::Integer(found), node)) => found == value && node.end_byte() <= table.start_byte(),
        _ => false,
    };
    if bytes.trailing_zeros() >= 20 && named("MiB", 1 << 20) {
        format!("{} * MiB", bytes >> 20)
    } else if bytes.trailing_zeros() >= 10 && named("KiB", 1 << 10) {
        format!("{} * KiB", bytes >> 10)
    } else {
        bytes.to_string()
    }
}

/// An exact number of MiB: bytes are whole, so twenty binary places are enough.
#[expect(clippy::cast_precision_loss, reason = "tables hold sizes below 2^40, which a double has exactly")]
fn mebibytes(bytes: u64) -> String {
    (bytes as f64 / f64::from(1 << 20)).to_string()
}
