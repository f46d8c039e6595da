//! Whether a changed schema still accepts every file that the old one accepts.
//!
//! The answer is conservative: a change that is not understood counts as a breakage. So "no breakages" is a proof, and a
//! breakage is a reason to look, or to start a new major version.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::shape::words;

/// One way in which the new schema refuses what the old one accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakage {
    /// Place in the files, e.g. `/allreduce/one_shot`, with `*` for any key or item.
    pub place: String,
    pub what: String,
}

/// All breakages from `old` to `new`; empty means that every file of the old schema fits the new one.
pub fn breakages(old: &Value, new: &Value) -> Vec<Breakage> {
    let mut comparison = Comparison { old, new, seen: HashSet::new(), found: Vec::new() };
    comparison.compare(old, new, "");
    comparison.found
}

/// Keywords that never refuse anything: `format` is an annotation in draft 2020-12.
const ANNOTATIONS: &[&str] =
    &["$schema", "$id", "$defs", "$comment", "title", "description", "default", "examples", "deprecated", "format"];

/// Keywords that are compared by meaning; every other one must stay as it is.
const UNDERSTOOD: &[&str] = &[
    "type",
    "enum",
    "const",
    "oneOf",
    "required",
    "properties",
    "patternProperties",
    "additionalProperties",
    "items",
    "uniqueItems",
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "minItems",
    "minProperties",
    "maximum",
    "exclusiveMaximum",
    "maxLength",
    "maxItems",
    "maxProperties",
];

/// What holds for keys that no other keyword names.
static ANYTHING: Value = Value::Bool(true);
static NOTHING: Value = Value::Bool(false);

struct Comparison<'a> {
    old: &'a Value,
    new: &'a Value,
    /// Pairs of nodes that are compared already, so that recursive types end.
    seen: HashSet<(*const Value, *const Value)>,
    found: Vec<Breakage>,
}

impl<'a> Comparison<'a> {
    fn compare(&mut self, old: &'a Value, new: &'a Value, place: &str) {
        let (old, new) = (follow(self.old, old), follow(self.new, new));
        if !self.seen.insert((old, new)) {
            return;
        }
        match (old, new) {
            (Value::Bool(false), _) | (_, Value::Bool(true)) => {}
            (_, Value::Object(map)) if map.keys().all(|key| ANNOTATIONS.contains(&key.as_str())) => {}
            (Value::Object(old), Value::Object(new)) => self.objects(old, new, place),
            (_, Value::Bool(false)) => self.breakage(place, "nothing is accepted here any more"),
            _ => self.breakage(place, "anything was accepted here, and is restricted now"),
        }
    }

    fn objects(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, place: &str) {
        self.types(old, new, place);
        self.word_lists(old, new, place);
        self.bounds(old, new, place);
        self.required(old, new, place);
        self.keys(old, new, place);
        if let Some(items) = new.get("items") {
            self.compare(old.get("items").unwrap_or(&ANYTHING), items, &format!("{place}/*"));
        }
        if new.get("uniqueItems") == Some(&Value::Bool(true)) && old.get("uniqueItems") != Some(&Value::Bool(true)) {
            self.breakage(place, "items must be unique now");
        }
        let others = |map: &'a Map<String, Value>| {
            map.iter().filter(|(key, _)| !ANNOTATIONS.contains(&key.as_str()) && !UNDERSTOOD.contains(&key.as_str()))
        };
        for (key, value) in others(new) {
            if old.get(key) != Some(value) {
                self.breakage(place, format!("`{key}` is new or changed: {value}"));
            }
        }
    }

    fn types(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, place: &str) {
        let Some(new) = type_list(new) else { return };
        let Some(old) = type_list(old) else {
            return self.breakage(place, format!("only {} is accepted now", new.join(" or ")));
        };
        let accepted = |kind: &&str| new.contains(kind) || (*kind == "integer" && new.contains(&"number"));
        let lost: Vec<&str> = old.into_iter().filter(|kind| !accepted(kind)).collect();
        if !lost.is_empty() {
            self.breakage(place, format!("a value of type {} is refused now", lost.join(" or ")));
        }
    }

    /// Closed lists of words, however they are written.
    fn word_lists(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, place: &str) {
        let listed = |map: &Map<String, Value>| ["enum", "const", "oneOf"].iter().any(|key| map.contains_key(*key));
        if !listed(new) {
            return;
        }
        let (old, new) = (Value::Object(old.clone()), Value::Object(new.clone()));
        match (words(&old), words(&new)) {
            (Some(old), Some(new)) => {
                let lost: Vec<&str> = old.into_iter().filter(|word| !new.contains(word)).collect();
                if !lost.is_empty() {
                    self.breakage(place, format!("no longer accepted: {}", lost.join(", ")));
                }
            }
            (None, Some(_)) => self.breakage(place, "only a list of words is accepted now"),
            _ => {
                let same = ["enum", "const", "oneOf"].iter().all(|key| old.get(key) == new.get(key));
                if !same {
                    self.breakage(place, "alternatives have changed in a way that is not understood");
                }
            }
        }
    }

    fn bounds(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, place: &str) {
        for (keyword, is_lower) in [
            ("minimum", true),
            ("exclusiveMinimum", true),
            ("minLength", true),
            ("minItems", true),
            ("minProperties", true),
            ("maximum", false),
            ("exclusiveMaximum", false),
            ("maxLength", false),
            ("maxItems", false),
            ("maxProperties", false),
        ] {
            let Some(now) = new.get(keyword).and_then(Value::as_f64) else { continue };
            let before = old.get(keyword).and_then(Value::as_f64);
            let looser = before.is_some_and(|before| if is_lower { now <= before } else { now >= before });
            // A count or length of at least 0 refuses nothing.
            let empty = is_lower && keyword.starts_with("min") && keyword != "minimum" && now <= 0.0;
            if !looser && !empty {
                self.breakage(place, format!("`{keyword}` is tighter: {now}"));
            }
        }
    }

    fn required(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, place: &str) {
        let list = |map: &Map<String, Value>| -> Vec<String> {
            let words = map.get("required").and_then(Value::as_array).into_iter().flatten();
            words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };
        let before = list(old);
        for key in list(new).into_iter().filter(|key| !before.contains(key)) {
            self.breakage(place, format!("the key `{key}` is required now"));
        }
    }

    /// Keys of a mapping: each one that the old schema accepts must fit the new one.
    fn keys(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, place: &str) {
        let named = |map: &'a Map<String, Value>| map.get("properties").and_then(Value::as_object);
        let patterns = |map: &'a Map<String, Value>| map.get("patternProperties").and_then(Value::as_object);
        let rest = |map: &'a Map<String, Value>| map.get("additionalProperties").unwrap_or(&ANYTHING);
        for (key, before) in named(old).into_iter().flatten() {
            match named(new).and_then(|keys| keys.get(key)) {
                Some(now) => self.compare(before, now, &format!("{place}/{key}")),
                None if rest(new) == &NOTHING => self.breakage(place, format!("the key `{key}` is gone")),
                None => self.compare(before, rest(new), &format!("{place}/{key}")),
            }
        }
        for (key, now) in named(new).into_iter().flatten() {
            if named(old).is_none_or(|keys| !keys.contains_key(key)) && follow(self.old, rest(old)) != &NOTHING {
                self.compare(rest(old), now, &format!("{place}/{key}"));
            }
        }
        for (pattern, before) in patterns(old).into_iter().flatten() {
            let now = patterns(new).and_then(|patterns| patterns.get(pattern)).unwrap_or(rest(new));
            self.compare(before, now, &format!("{place}/*"));
        }
        for pattern in patterns(new).into_iter().flatten().map(|(pattern, _)| pattern) {
            if patterns(old).is_none_or(|patterns| !patterns.contains_key(pattern)) {
                self.breakage(place, format!("keys like `{pattern}` are restricted now"));
            }
        }
        self.compare(rest(old), rest(new), &format!("{place}/*"));
    }

    fn breakage(&mut self, place: &str, what: impl Into<String>) {
        let place = if place.is_empty() { "/".to_owned() } else { place.to_owned() };
        let breakage = Breakage { place, what: what.into() };
        if !self.found.contains(&breakage) {
            self.found.push(breakage);
        }
    }
}

fn type_list(map: &Map<String, Value>) -> Option<Vec<&str>> {
    match map.get("type")? {
        Value::String(kind) => Some(vec![kind]),
        Value::Array(kinds) => kinds.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// The node itself, or what its reference names. A node with keywords beside `$ref` is followed all the same: beside a
/// reference our schemas have annotations only.
fn follow<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    let mut node = node;
    for _ in 0..16 {
        let Some(reference) = node.get("$ref").and_then(Value::as_str) else { break };
        let restricts = node
            .as_object()
            .is_some_and(|map| map.keys().any(|key| key != "$ref" && !ANNOTATIONS.contains(&key.as_str())));
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        match target {
            Some(target) if !restricts => node = target,
            _ => break,
        }
    }
    node
}
