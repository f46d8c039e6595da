//! One merged record in print: every value with its evidence, file and line.

use std::fmt::Write as _;

use capdb::resolve::{Origin, Resolved};
use serde_json::{Map, Value, json};

use crate::yaml_text::{flow, key};

/// The record and, by JSON pointer, the origin of each value.
pub fn to_json(resolved: &Resolved) -> Value {
    let origins: Map<String, Value> =
        resolved.origins.iter().map(|(pointer, origin)| (pointer.clone(), origin_json(origin))).collect();
    json!({
        "id": resolved.id,
        "arch": resolved.arch,
        "gpu": resolved.gpu,
        "record": resolved.value,
        "origins": origins,
    })
}

fn origin_json(origin: &Origin) -> Value {
    json!({
        "kind": origin.kind().word(),
        "source": origin.evidence.as_ref().map(|evidence| evidence.source.as_str()),
        "file": origin.file,
        "line": origin.line,
        "layer": origin.layer,
        "evidence": origin.evidence,
    })
}

/// Keys that name a record, in the order of an author.
const NAMES: &[&str] = &[
    "schema",
    "id",
    "compute_capability",
    "name",
    "device_names",
    "arch",
    "extends",
    "aliases",
    "compile",
    "compiles_for",
];

/// YAML in the form of a record, with the origin of each value as a comment.
pub fn to_yaml(resolved: &Resolved) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    if let Value::Object(map) = &resolved.value {
        // Names first: the merged tree has the keys of the eldest parent in front.
        let rank = |key: &str| NAMES.iter().position(|name| *name == key).unwrap_or(NAMES.len());
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        entries.sort_by_key(|(key, _)| rank(key));
        let sorted = entries.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        mapping(resolved, &sorted, "", 0, &mut lines);
    }
    let width =
        lines.iter().filter(|(_, origin)| !origin.is_empty()).map(|(text, _)| text.chars().count().min(60)).max();
    lines.into_iter().fold(String::new(), |mut text, (line, origin)| {
        let _ = match origin.as_str() {
            "" => writeln!(text, "{line}"),
            origin => writeln!(text, "{line:width$}  # {origin}", width = width.unwrap_or(0)),
        };
        text
    })
}

fn mapping(
    resolved: &Resolved,
    map: &Map<String, Value>,
    pointer: &str,
    depth: usize,
    lines: &mut Vec<(String, String)>,
) {
    let indent = "  ".repeat(depth);
    for (name, value) in map {
        let below = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        let origin = |pointer: &str| resolved.origins.get(pointer).map(describe).unwrap_or_default();
        match value {
            // Evidence is one statement, so it stands on one line.
            Value::Object(inner) if !inner.is_empty() && !name.ends_with("evidence") => {
                lines.push((format!("{indent}{}:", key(name)), String::new()));
                mapping(resolved, inner, &below, depth + 1, lines);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                lines.push((format!("{indent}{}:", key(name)), origin(&below)));
                lines.extend(items.iter().map(|item| (format!("{indent}  - {}", flow(item)), String::new())));
            }
            _ if name.ends_with("evidence") => {
                lines.push((format!("{indent}{}: {}", key(name), flow(value)), String::new()))
            }
            _ => lines.push((format!("{indent}{}: {}", key(name), flow(value)), origin(&below))),
        }
    }
}

/// `measured h200-baselines, gpu/h200.yaml:21`; for a value of a parent `inherited (measured h200-baselines), …`.
fn describe(origin: &Origin) -> String {
    match (&origin.evidence, origin.inherited) {
        // Names and other values that steer nothing carry no evidence; "guessed" would be wrong for them.
        (None, false) => origin.to_string(),
        (None, true) => format!("inherited, {origin}"),
        (Some(evidence), false) => format!("{} {}, {origin}", evidence.kind, evidence.source),
        (Some(evidence), true) => format!("inherited ({} {}), {origin}", evidence.kind, evidence.source),
    }
}
