//! What a plain scalar means, and whether YAML 1.1 and YAML 1.2 agree about it.
//!
//! Sources: YAML 1.2.2 section 10.3.2 (core schema); yaml.org/type for YAML 1.1 (bool, int, float, timestamp, value).

use super::node::NodeKind;

/// A plain scalar that cannot be taken as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objection {
    pub code: &'static str,
    pub message: String,
    pub hint: String,
    pub replacement: Option<String>,
}

/// The meaning of a plain scalar that every reader shares.
pub(super) fn plain(text: &str) -> Result<NodeKind, Objection> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(NodeKind::Null),
        "true" | "True" | "TRUE" => return Ok(NodeKind::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(NodeKind::Bool(false)),
        _ => {}
    }
    if let Some(other) = older_reading(text) {
        return Err(ambiguous(text, other));
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.strip_prefix('+').unwrap_or(text).parse().map(NodeKind::Integer).map_err(|_| out_of_range(text));
    }
    if let Some(digits) = text.strip_prefix("0x").filter(|digits| is_hexadecimal(digits)) {
        return i64::from_str_radix(digits, 16).map(NodeKind::Integer).map_err(|_| out_of_range(text));
    }
    if is_float(unsigned) {
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(NodeKind::Float(value)),
            _ => Err(out_of_range(text)),
        };
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(Objection {
            code: "number-out-of-range",
            message: format!("`{text}` is not a finite number"),
            hint: "give a finite number, or leave the key out".into(),
            replacement: None,
        });
    }
    Ok(NodeKind::Text(text.to_owned()))
}

/// How a YAML 1.1 reader takes `text`, where a YAML 1.2 reader takes it otherwise.
fn older_reading(text: &str) -> Option<&'static str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(text.to_ascii_lowercase().as_str(), "y" | "n" | "yes" | "no" | "on" | "off") {
        return Some("a boolean");
    }
    if text == "=" {
        return Some("the `value` key");
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let octal = unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if octal
        || unsigned.starts_with("0o") && unsigned[2..].bytes().all(|byte| byte.is_ascii_digit()) && unsigned.len() > 2
    {
        return Some("an octal number or text");
    }
    if unsigned.len() > 2
        && unsigned.starts_with("0b")
        && unsigned[2..].bytes().all(|byte| matches!(byte, b'0' | b'1' | b'_'))
    {
        return Some("a binary number");
    }
    if unsigned.contains('_') && is_number_like(&unsigned.replace('_', "")) {
        return Some("a number with digit groups");
    }
    if is_sexagesimal(unsigned) {
        return Some("a number to base 60");
    }
    if is_date(text) {
        return Some("a date");
    }
    let exponent = unsigned.find(['e', 'E']).filter(|_| is_float(unsigned));
    if exponent.is_some_and(|at| !unsigned[..at].contains('.') || !unsigned[at + 1..].starts_with(['-', '+'])) {
        return Some("text, since its exponent has no sign or its number no point");
    }
    if text.starts_with(['-', '+']) && unsigned.starts_with("0x") {
        return Some("a hexadecimal number");
    }
    None
}

fn ambiguous(text: &str, older: &str) -> Objection {
    let (hint, replacement) = match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "on" => ("write `true` for the boolean, or quote it for the text".to_owned(), None),
        "n" | "no" | "off" => ("write `false` for the boolean, or quote it for the text".to_owned(), None),
        _ => (format!("quote it for the text, or write the number plainly: \"{text}\""), Some(format!("\"{text}\""))),
    };
    Objection {
        code: "ambiguous-scalar",
        message: format!("`{text}` means different things to YAML 1.1 and YAML 1.2 readers: {older} to the older"),
        hint,
        replacement,
    }
}

fn out_of_range(text: &str) -> Objection {
    Objection {
        code: "number-out-of-range",
        message: format!("`{text}` does not fit a 64-bit number"),
        hint: "check the digits; quote it if it is a text".into(),
        replacement: None,
    }
}

fn is_hexadecimal(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, then an optional exponent.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|part| {
        let part = part.strip_prefix(['-', '+']).unwrap_or(part);
        !part.is_empty() && digits(part)
    });
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent_fits
        && (mantissa.contains('.') || exponent.is_some())
}

fn is_number_like(text: &str) -> bool {
    !text.is_empty()
        && (text.bytes().all(|byte| byte.is_ascii_digit())
            || is_float(text)
            || text.strip_prefix("0x").is_some_and(is_hexadecimal))
}

fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or("");
    let rest: Vec<&str> = parts.collect();
    !rest.is_empty()
        && !first.is_empty()
        && first.bytes().all(|byte| byte.is_ascii_digit())
        && rest.iter().all(|part| {
            let whole = part.split('.').next().unwrap_or("");
            (1..=2).contains(&whole.len())
                && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                && whole.parse::<u8>().is_ok_and(|n| n < 60)
        })
}

/// `2026-11-29`, with or without a time behind it.
fn is_date(text: &str) -> bool {
    let day = text.split(['T', 't', ' ']).next().unwrap_or("");
    let parts: Vec<&str> = day.split('-').collect();
    let [year, month, date] = parts[..] else { return false };
    let digits = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    digits(year, 4..=4) && digits(month, 1..=2) && digits(date, 1..=2)
}
