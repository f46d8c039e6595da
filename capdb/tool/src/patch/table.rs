//! Rows of a table in bytes, whatever unit the project writes.

use std::collections::BTreeMap;

use capdb::record::{PatchRow, PatchTable};

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
            return Err(source.shape(node, format!("`{}` is no dictionary that is written out", shape.name)));
        };
        let mut rows = Vec::new();
        for (key, value, at) in entries {
            let row = row(&value, shape.row).ok_or_else(|| SourceError::Shape {
                path: source.path.clone(),
                line: at,
                what: format!("the row does not have the form `{}`", shape.row),
            })?;
            rows.push((key, row, at));
        }
        Ok(Self { line: line(node), rows })
    }

    pub fn row(&self, key: &Literal) -> Option<(&Row, usize)> {
        self.rows.iter().find(|(known, ..)| known == key).map(|(_, row, at)| (row, *at))
    }
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
