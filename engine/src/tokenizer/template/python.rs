//! Values as Python writes them: `json.dumps` and `str`.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deepest nesting that is written.
const DEPTH: usize = 128;

/// Options of `json.dumps`.
#[derive(Clone, Debug, Default)]
pub(super) struct Style {
    /// Spaces per level; `None` writes one line.
    pub indent: Option<usize>,
    pub sorted: bool,
    /// Write other than ASCII characters as `\uXXXX`.
    pub escaped: bool,
    /// Between items, and between key and value; Python's usual ones are `", "` (`","` with an indent) and `": "`.
    pub separators: Option<(String, String)>,
}

/// `json.dumps(value)`.
pub(super) fn json(value: &Value, style: &Style) -> Result<String, Error> {
    let mut text = String::new();
    write_json(&mut text, value, style, 0)?;
    Ok(text)
}

fn write_json(text: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    let fail = |message: String| Error::new(ErrorKind::InvalidOperation, message);
    if depth > DEPTH {
        return Err(fail(format!("tojson: values nest deeper than {DEPTH}")));
    }
    match value.kind() {
        ValueKind::Undefined => return Err(fail("tojson: the value is undefined".to_owned())),
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => text.push_str(&number(value)),
        ValueKind::String => quote(text, value.as_str().unwrap_or_default(), style.escaped),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_items(text, ('[', ']'), items.len(), style, depth, |text, index| {
                write_json(text, &items[index], style, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sorted {
                keys.sort();
            }
            let colon = style.separators.as_ref().map_or(": ", |(_, colon)| colon);
            write_items(text, ('{', '}'), keys.len(), style, depth, |text, index| {
                quote(text, &keys[index].to_string(), style.escaped);
                text.push_str(colon);
                write_json(text, &value.get_item(&keys[index])?, style, depth + 1)
            })?;
        }
        other => return Err(fail(format!("tojson: a value of kind {other} has no JSON"))),
    }
    Ok(())
}

/// A bracketed list of items, each written by `write`.
fn write_items(
    text: &mut String,
    (open, close): (char, char),
    count: usize,
    style: &Style,
    depth: usize,
    mut write: impl FnMut(&mut String, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |level: usize| style.indent.map(|indent| format!("\n{}", " ".repeat(indent * level)));
    let usual = if style.indent.is_some() { "," } else { ", " };
    let comma = style.separators.as_ref().map_or(usual, |(comma, _)| comma);
    text.push(open);
    for index in 0..count {
        if index > 0 {
            text.push_str(comma);
        }
        text.push_str(&line(depth + 1).unwrap_or_default());
        write(text, index)?;
    }
    if count > 0 {
        text.push_str(&line(depth).unwrap_or_default());
    }
    text.push(close);
    Ok(())
}

/// A string with Python's JSON escapes.
fn quote(text: &mut String, value: &str, escaped: bool) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\0'..='\u{1f}' => push_code(text, character),
            _ if escaped && !character.is_ascii() => push_code(text, character),
            _ => text.push(character),
        }
    }
    text.push('"');
}

fn push_code(text: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing into a string cannot fail.
        let _ = write!(text, "\\u{unit:04x}");
    }
}

/// A number; Python gives exponents a sign and two digits.
fn number(value: &Value) -> String {
    let text = value.to_string();
    if value.is_integer() {
        return text;
    }
    let Ok(float) = f64::try_from(value.clone()) else { return text };
    if float.is_nan() || float.is_infinite() {
        return if float.is_nan() {
            "NaN"
        } else if float > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    let text = format!("{float:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `str(value)`: strings as they are, everything else as [`repr`].
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => repr(value, 0),
    }
}

/// `repr(value)`.
fn repr(value: &Value, depth: usize) -> String {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::Number => number(value),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Map if depth > DEPTH => "...".to_owned(),
        ValueKind::Seq => {
            let items = value.try_iter().into_iter().flatten().map(|item| repr(&item, depth + 1));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        ValueKind::Map => {
            let item = |key: Value| {
                let value = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", repr(&key, depth + 1), repr(&value, depth + 1))
            };
            let items = value.try_iter().into_iter().flatten().map(item);
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

fn repr_string(value: &str) -> String {
    let quote = if value.contains('\'') && !value.contains('"') { '"' } else { '\'' };
    let mut text = String::from(quote);
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            other if other == quote => text.extend(['\\', quote]),
            other => text.push(other),
        }
    }
    text.push(quote);
    text
}
