//! Rows of a table in bytes, whatever unit the project writes.

use std::collections::BTreeMap;

use capdb::record::{PatchKey, PatchRow, PatchTable};

use super::card::Row;
use super::literal::Literal;
use super::python::{Source, SourceError, line};

/// A table as the source has it.
pub struct Table {
    /// Line of its definition.
    pub line: usize,
    /// Key, row, line of the key.
    pub rows: Vec<(Literal, Row, usize)>,
}

impl Table {
    pub fn read(source: &Source, shape: &PatchTable) -> Result<Self, SourceError> {
        let (value, node) = source.constant(shape.class.as_deref(), &shape.name)?;
        let Literal::Mapping(entries) = value else {
            return Err(source.shape(node, format!("`{}` is not a dictionary that is written out", shape.name)));
        };
        let form = |at: usize| SourceError::Shape {
            path: source.path.clone(),
            line: at,
            what: format!("the row does not have the form `{}`", shape.row),
        };
        let rows = match shape.key {
            PatchKey::AnyGpu => {
                let row = row(&Literal::Mapping(entries), shape.row).ok_or_else(|| form(line(node)))?;
                vec![(any_gpu(), row, line(node))]
            }
            PatchKey::CapabilityRanksNodes => {
                let rows = entries.iter().map(|(key, value, at)| triple(key, value).ok_or_else(|| form(*at)));
                one_node(rows.collect::<Result<Vec<_>, _>>()?, &entries)
            }
            _ => entries
                .into_iter()
                .map(|(key, value, at)| Ok((key, row(&value, shape.row).ok_or_else(|| form(at))?, at)))
                .collect::<Result<Vec<_>, SourceError>>()?,
        };
        Ok(Self { line: line(node), rows })
    }

    pub fn row(&self, key: &Literal) -> Option<(&Row, usize)> {
        self.rows.iter().find(|(known, ..)| known == key).map(|(_, row, at)| (row, *at))
    }
}

/// The key of a table that has none for the GPU.
pub fn any_gpu() -> Literal {
    Literal::Text("any GPU".to_owned())
}

/// `(103, 8, 1): 128` → capability, ranks, nodes, bytes.
fn triple(key: &Literal, value: &Literal) -> Option<(i64, u32, i64, u64)> {
    let Literal::Sequence(parts) = key else { return None };
    let [Literal::Integer(capability), Literal::Integer(ranks), Literal::Integer(nodes)] = parts.as_slice() else {
        return None;
    };
    let bytes = bytes(value.as_number()? * f64::from(1 << 20))?;
    Some((*capability, u32::try_from(*ranks).ok()?, *nodes, bytes))
}

/// The entries for one node as a row for each capability.
fn one_node(entries: Vec<(i64, u32, i64, u64)>, places: &[(Literal, Literal, usize)]) -> Vec<(Literal, Row, usize)> {
    let mut rows: Vec<(Literal, Row, usize)> = Vec::new();
    for ((capability, ranks, nodes, bytes), (.., at)) in entries.into_iter().zip(places) {
        if nodes != 1 {
            continue;
        }
        let key = Literal::Integer(capability);
        match rows.iter_mut().find(|(known, ..)| *known == key) {
            Some((_, row, _)) => drop(row.insert(ranks, bytes)),
            None => rows.push((key, Row::from([(ranks, bytes)]), *at)),
        }
    }
    rows
}

fn row(value: &Literal, form: PatchRow) -> Option<Row> {
    let world_size = |value: &Literal| match value {
        Literal::Integer(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    match (form, value) {
        (PatchRow::WorldSizes, Literal::Sequence(items)) => {
            items.iter().map(|item| Some((world_size(item)?, 0))).collect::<Option<BTreeMap<_, _>>>()
        }
        (PatchRow::Bytes | PatchRow::Mebibytes, Literal::Mapping(entries)) => {
            let unit = if form == PatchRow::Mebibytes { f64::from(1 << 20) } else { 1.0 };
            entries.iter().map(|(key, value, _)| Some((world_size(key)?, bytes(value.as_number()? * unit)?))).collect()
        }
        _ => None,
    }
}

/// A whole, positive number of bytes up to 2^40.
pub fn bytes(number: f64) -> Option<u64> {
    let whole = number >= 1.0 && number <= (1_u64 << 40) as f64 && number.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
    whole.then_some(number as u64)
}
