//! Values that differ, with their evidence.

use std::collections::BTreeSet;
use std::fmt;

use capdb::resolve::{OVERLAY_LAYER, Resolved};
use serde::Serialize;

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
        let same = |a: &Stated, b: &Stated| a.value == b.value && a.evidence == b.evidence;
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
    let value = resolved.value.pointer(pointer).map(flow)?;
    Some(Stated { value, evidence, file: origin.file.clone(), line: origin.line })
}

impl fmt::Display for Stated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.evidence.as_str() {
            "" => write!(formatter, "{} ({}:{})", self.value, self.file, self.line),
            evidence => write!(formatter, "{} ({evidence}, {}:{})", self.value, self.file, self.line),
        }
    }
}

impl fmt::Display for ValueChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: &Option<Stated>| side.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
        write!(formatter, "{} {}: {} → {}", self.record, self.path, side(&self.old), side(&self.new))
    }
}
