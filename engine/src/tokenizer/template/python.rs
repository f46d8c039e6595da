//! Values as Python writes them: `json.dumps` and `str`.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Deepest nesting that is written.
const DEPTH: usize = 128;

/// Bytes of text that one unit of fuel pays for, as in the engine itself.
const BYTES_PER_FUEL: usize = 64;

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

/// `json.dumps(value)`. Errors: a value that has no JSON, or more of it than the rendering has fuel for.
pub(super) fn json(state: &State, value: &Value, style: &Style) -> Result<String, Error> {
    let mut text = String::new();
    write_json(&mut text, state, value, style, 0)?;
    Ok(text)
}

/// The items of a list, or the keys of a map. Each is paid for before the next is made: a list can be as long as a
/// number, and lists of lists that share their items as long as no memory.
fn items(state: &State, value: &Value) -> Result<Vec<Value>, Error> {
    value.try_iter()?.map(|item| state.consume_fuel(1).map(|()| item)).collect()
}

/// Pays for the text that was written since it was `before` bytes long, as the engine does for its own.
fn pay(state: &State, text: &str, before: usize) -> Result<(), Error> {
    state.consume_fuel(1 + ((text.len() - before) / BYTES_PER_FUEL) as u64)
}

fn write_json(text: &mut String, state: &State, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    let fail = |message: String| Error::new(ErrorKind::InvalidOperation, message);
    if depth > DEPTH {
        return Err(fail(format!("tojson: values nest deeper than {DEPTH}")));
    }
    let before = text.len();
    match value.kind() {
        ValueKind::Undefined => return Err(fail("tojson: the value is undefined".to_owned())),
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => text.push_str(&number(value)),
        ValueKind::String => quote(text, value.as_str().unwrap_or_default(), style.escaped),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = items(state, value)?;
            return write_items(text, state, ('[', ']'), items.len(), style, depth, |text, index| {
                write_json(text, state, &items[index], style, depth + 1)
            });
        }
        ValueKind::Map => {
            let mut keys = items(state, value)?;
            if style.sorted {
                keys.sort();
            }
            let colon = style.separators.as_ref().map_or(": ", |(_, colon)| colon);
            return write_items(text, state, ('{', '}'), keys.len(), style, depth, |text, index| {
                let before = text.len();
                quote(text, &self::text(state, &keys[index])?, style.escaped);
                text.push_str(colon);
                pay(state, text, before)?;
                write_json(text, state, &value.get_item(&keys[index])?, style, depth + 1)
            });
        }
        other => return Err(fail(format!("tojson: a value of kind {other} has no JSON"))),
    }
    pay(state, text, before)
}

/// A bracketed list of items, each written by `write`.
fn write_items(
    text: &mut String,
    state: &State,
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
        let before = text.len();
        if index > 0 {
            text.push_str(comma);
        }
        text.push_str(&line(depth + 1).unwrap_or_default());
        pay(state, text, before)?;
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

/// `str(value)`: strings as they are, everything else as `repr(value)`. Errors: more text than the rendering has fuel for.
pub(super) fn text(state: &State, value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    write_repr(&mut text, state, value, 0)?;
    Ok(text)
}

/// `repr(value)`.
fn write_repr(text: &mut String, state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    let before = text.len();
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => text.push_str("None"),
        ValueKind::Bool => text.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => text.push_str(&number(value)),
        ValueKind::String => text.push_str(&repr_string(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map if depth > DEPTH => text.push_str("..."),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = items(state, value)?;
            return write_list(text, ('[', ']'), &items, |text, item| write_repr(text, state, item, depth + 1));
        }
        ValueKind::Map => {
            return write_list(text, ('{', '}'), &items(state, value)?, |text, key| {
                write_repr(text, state, key, depth + 1)?;
                text.push_str(": ");
                write_repr(text, state, &value.get_item(key).unwrap_or_default(), depth + 1)
            });
        }
        _ => text.push_str(&value.to_string()),
    }
    pay(state, text, before)
}

/// Items between brackets as `repr` sets them.
fn write_list(
    text: &mut String,
    (open, close): (char, char),
    items: &[Value],
    mut write: impl FnMut(&mut String, &Value) -> Result<(), Error>,
) -> Result<(), Error> {
    text.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        write(text, item)?;
    }
    text.push(close);
    Ok(())
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
