//! Writing YAML that the strict reader takes back as it was meant.

use capdb::yaml::{self, NodeKind};
use serde_json::Value;

/// A text as a scalar: plain where every reader takes it for this text, else in double quotes.
pub fn scalar(text: &str) -> String {
    let simple = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./+ ".contains(&byte))
        && !text.ends_with(' ');
    if simple && is_plain(text) { text.to_owned() } else { Value::String(text.to_owned()).to_string() }
}

fn is_plain(text: &str) -> bool {
    let document = yaml::read("", format!("a: {text}\n").as_bytes());
    let value = document.root.as_ref().and_then(|root| root.get("a"));
    document.problems.is_empty() && value.is_some_and(|node| node.kind == NodeKind::Text(text.to_owned()))
}

/// A key: a number of ranks stays a number.
pub fn key(text: &str) -> String {
    let number = text.parse::<u32>().is_ok_and(|number| number.to_string() == text);
    if number { text.to_owned() } else { scalar(text) }
}

/// A size is written without quotes; every other text as a scalar.
fn leaf(text: &str) -> String {
    let size = text.parse::<capdb::quantity::Size>().is_ok() && text.ends_with("iB");
    let bandwidth = text.parse::<capdb::quantity::Bandwidth>().is_ok();
    if size || bandwidth { text.to_owned() } else { scalar(text) }
}

/// A value on one line, in flow style.
pub fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => leaf(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(name, value)| format!("{}: {}", key(name), flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_comes_back() {
        let value = json!({
            "text": "plain words", "no": "no", "number-like": "12.0", "octal": "0755", "date": "2026-11-29", "size": "64MiB",
            "quote": "a \"b\" \\ c: d # e", "empty": "", "line": "two\nlines", "list": ["a", 1, null, true, 1.5], "space": "a ",
            "sizes": {"2": "64KiB", "16": 7275020}, "speed": "4800GB/s", "sign": "- a", "unicode": "µs → 10 µs",
        });
        let document = yaml::read("", flow(&value).as_bytes());
        assert_eq!(document.problems, []);
        assert_eq!(document.root.unwrap().to_json(), value);
    }
}
