//! Metadata values. Arrays stay in the file and are decoded when asked for, so nothing is copied while reading.

use serde_json::{Number, Value as Json};

use super::cursor::Cursor;

/// Deepest nesting of arrays; real files nest none.
const DEPTH: usize = 3;

/// Longest array that is offered as JSON: per-layer values, not vocabularies.
const LISTED: usize = 4096;

/// Type of a metadata value. The numbers are the format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Text,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn read(cursor: &mut Cursor, what: &str) -> Result<Self, String> {
        let at = cursor.at();
        let number = cursor.u32(what)?;
        let known = usize::try_from(number).ok().and_then(|number| Self::ALL.get(number).copied());
        known.ok_or_else(|| format!("{what} at offset {at} has the unknown value type {number}"))
    }

    /// Fewest bytes that a value takes: exact for numbers.
    fn smallest(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Text => 8,
            Self::Array => 12,
        }
    }

    fn fixed(self) -> bool {
        !matches!(self, Self::Text | Self::Array)
    }
}

/// Where a value lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    kind: ValueType,
    /// Offset of the value; for an array, of its first element.
    at: usize,
    /// Element type and count of an array.
    elements: Option<(ValueType, usize)>,
}

impl Value {
    /// Reads over a value with its type, checking every length in it.
    pub fn read(cursor: &mut Cursor, what: &str) -> Result<Self, String> {
        let kind = ValueType::read(cursor, what)?;
        if kind != ValueType::Array {
            let at = cursor.at();
            skip(cursor, kind, what, 0)?;
            return Ok(Self { kind, at, elements: None });
        }
        let (element, count) = array_header(cursor, what)?;
        let at = cursor.at();
        skip_elements(cursor, element, count, what, 1)?;
        Ok(Self { kind, at, elements: Some((element, count)) })
    }

    /// The string, if it is one.
    pub fn text<'a>(&self, bytes: &'a [u8], what: &str) -> Option<Result<&'a str, String>> {
        (self.kind == ValueType::Text).then(|| Cursor::new(bytes, self.at).text(what))
    }

    /// The strings of an array of strings, in order.
    pub fn texts<'a>(&self, bytes: &'a [u8], what: &str) -> Option<impl Iterator<Item = Result<&'a str, String>>> {
        let count = self.elements.filter(|(element, _)| *element == ValueType::Text)?.1;
        let mut cursor = Cursor::new(bytes, self.at);
        Some((0..count).map(move |index| cursor.text(&format!("{what}[{index}]"))))
    }

    /// The numbers of an array of numbers, in order.
    pub fn numbers(&self, bytes: &[u8], what: &str) -> Option<impl Iterator<Item = Result<f64, String>>> {
        let (element, count) = self.elements.filter(|(element, _)| element.fixed())?;
        let mut cursor = Cursor::new(bytes, self.at);
        Some((0..count).map(move |_| {
            let number = json(&mut cursor, element, what)?;
            Ok(number.as_f64().unwrap_or(f64::NAN))
        }))
    }

    pub fn len(&self) -> Option<usize> {
        self.elements.map(|(_, count)| count)
    }

    /// The value as JSON: scalars, and short arrays of scalars.
    pub fn json(&self, bytes: &[u8], what: &str) -> Result<Option<Json>, String> {
        let mut cursor = Cursor::new(bytes, self.at);
        match self.elements {
            None => json(&mut cursor, self.kind, what).map(Some),
            Some((ValueType::Array, _)) => Ok(None),
            Some((_, count)) if count > LISTED => Ok(None),
            Some((element, count)) => {
                let items = (0..count).map(|_| json(&mut cursor, element, what));
                items.collect::<Result<Vec<_>, _>>().map(|items| Some(Json::Array(items)))
            }
        }
    }
}

fn array_header(cursor: &mut Cursor, what: &str) -> Result<(ValueType, usize), String> {
    let element = ValueType::read(cursor, what)?;
    let count = cursor.count(element.smallest(), what)?;
    Ok((element, count))
}

fn skip_elements(
    cursor: &mut Cursor,
    element: ValueType,
    count: usize,
    what: &str,
    depth: usize,
) -> Result<(), String> {
    if element.fixed() {
        // `count` was checked against the bytes left.
        return cursor.take(count * element.smallest(), what).map(|_| ());
    }
    (0..count).try_for_each(|_| skip(cursor, element, what, depth))
}

fn skip(cursor: &mut Cursor, kind: ValueType, what: &str, depth: usize) -> Result<(), String> {
    match kind {
        ValueType::Text => cursor.string(what).map(|_| ()),
        ValueType::Array if depth >= DEPTH => Err(format!("{what} nests arrays deeper than {DEPTH}")),
        ValueType::Array => {
            let (element, count) = array_header(cursor, what)?;
            skip_elements(cursor, element, count, what, depth + 1)
        }
        ValueType::Bool => {
            let at = cursor.at();
            match cursor.take(1, what)? {
                [0 | 1] => Ok(()),
                other => Err(format!("{what} at offset {at} is {}, but a truth value is 0 or 1", other[0])),
            }
        }
        fixed => cursor.take(fixed.smallest(), what).map(|_| ()),
    }
}

fn json(cursor: &mut Cursor, kind: ValueType, what: &str) -> Result<Json, String> {
    if kind == ValueType::Text {
        return cursor.text(what).map(Json::from);
    }
    let bytes = cursor.take(kind.smallest(), what)?;
    // Sign- or zero-extended to 64 bits; `smallest` is the exact length of every type below.
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    let shift = 64 - 8 * bytes.len() as u32;
    let signed = ((unsigned << shift) as i64) >> shift;
    // JSON has no infinity; as a string it is refused wherever a number is needed.
    let float = |number: f64| Number::from_f64(number).map_or_else(|| Json::from(number.to_string()), Json::Number);
    Ok(match kind {
        ValueType::U8 | ValueType::U16 | ValueType::U32 | ValueType::U64 => Json::from(unsigned),
        ValueType::I8 | ValueType::I16 | ValueType::I32 | ValueType::I64 => Json::from(signed),
        ValueType::F32 => float(f64::from(f32::from_bits(unsigned as u32))),
        ValueType::F64 => float(f64::from_bits(unsigned)),
        ValueType::Bool => Json::from(unsigned != 0),
        ValueType::Text | ValueType::Array => Json::Null,
    })
}
