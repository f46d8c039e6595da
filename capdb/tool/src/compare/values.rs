//! Values that differ, with their evidence.

use std::collections::BTreeSet;
use std::fmt;

use capdb::resolve::{OVERLAY_LAYER, Resolved};
use serde::Serialize;
use serde_json::Value;

use super::ladders;
use crate::yaml_text::flow;

/// One value that differs in itself or in its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    pub record: String,
    /// Dotted path.
    pub path: String,
    pub old: Option<Stated>,
    pub new: Option<Stated>,
}

/// A value with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stated {
    pub value: String,
    /// `measured h200-baselines`, or empty where nothing is claimed.
    pub evidence: String,
    pub file: String,
    pub line: usize,
    /// The value before it became a line of text.
    #[serde(skip)]
    raw: Value,
}

pub(super) fn compare(id: &str, old: &Resolved, new: &Resolved, changes: &mut Vec<ValueChange>) {
    let pointers: BTreeSet<&String> = old.origins.keys().chain(new.origins.keys()).collect();
    // Evidence is compared with the value that it is about.
    for pointer in pointers.into_iter().filter(|pointer| !pointer.contains("evidence")) {
        // A product repeats every value of its architecture, where the change is listed already.
        let stands = |layer: &str| layer == id || layer == OVERLAY_LAYER;
        let own = |resolved: &Resolved| resolved.origins.get(pointer).is_some_and(|origin| stands(&origin.layer));
        if new.gpu.is_some() && !own(old) && !own(new) {
            continue;
        }
        let (before, after) = (stated(old, pointer), stated(new, pointer));
        let same = |a: &Stated, b: &Stated| a.raw == b.raw && a.evidence == b.evidence;
        let equal = match (&before, &after) {
            (Some(before), Some(after)) => same(before, after),
            (None, None) => true,
            _ => false,
        };
        if !equal {
            let path = pointer[1..].replace('/', ".");
            changes.push(ValueChange { record: id.to_owned(), path, old: before, new: after });
        }
    }
}

fn stated(resolved: &Resolved, pointer: &str) -> Option<Stated> {
    let origin = resolved.origins.get(pointer)?;
    let evidence = match &origin.evidence {
        Some(evidence) => format!("{} {}", origin.kind(), evidence.source),
        None if origin.inherited => "inherited".to_owned(),
        None => String::new(),
    };
    let raw = resolved.value.pointer(pointer)?;
    Some(Stated { value: flow(raw), evidence, file: origin.file.clone(), line: origin.line, raw: raw.clone() })
}

impl Stated {
    /// What it rests on, and where it stands.
    fn place(&self) -> String {
        match self.evidence.as_str() {
            "" => format!("{}:{}", self.file, self.line),
            evidence => format!("{evidence}, {}:{}", self.file, self.line),
        }
    }
}

impl fmt::Display for ValueChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, path, old, new } = self;
        let rows = ladders::rows(old.as_ref().map(|old| &old.raw), new.as_ref().map(|new| &new.raw));
        let side = |side: &Option<Stated>| match side {
            None => "nothing".to_owned(),
            Some(stated) if rows.is_some() => stated.place(),
            Some(stated) => format!("{} ({})", stated.value, stated.place()),
        };
        write!(formatter, "{record} {path}: {} → {}", side(old), side(new))?;
        rows.iter().flatten().try_for_each(|row| write!(formatter, "\n  {row}"))
    }
}
