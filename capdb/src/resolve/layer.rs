//! Laying one record over what is there.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Resolved;
use super::origin::Origin;
use crate::load;
use crate::record::{Evidence, EvidenceKind};
use crate::yaml::{Node, NodeKind};

/// Keys that name a record rather than describe it: a child never takes them from its parent.
const OWN_KEYS: &[&str] =
    &["schema", "id", "name", "compute_capability", "extends", "aliases", "notes", "compile", "compiles_for"];

/// Layer of an overlay's values in their origins.
pub const OVERLAY_LAYER: &str = "overlay";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A record that another one extends.
    Parent,
    /// The architecture itself.
    Arch,
    Gpu,
    /// A site overlay.
    Overlay,
    /// The `record` of a decision case: it keeps the evidence of what it changes.
    Case,
}

/// One record on its way into the merged tree.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    pub kind: LayerKind,
    pub id: &'a str,
    /// Path shown in origins.
    pub file: &'a str,
    /// Text of the file, for line numbers; empty where none exists.
    pub bytes: &'a [u8],
    pub node: &'a Node,
}

/// Evidence that holds for the values below a place.
#[derive(Clone, Default)]
struct Scope {
    evidence: Option<Evidence>,
    inherited: bool,
    /// Evidence of single keys of the innermost block: path inside it → evidence.
    keys: Vec<(String, Evidence)>,
    /// Pointer of the block that `keys` is relative to.
    block: String,
}

pub(super) fn apply(resolved: &mut Resolved, layer: &Layer<'_>) {
    let scope = Scope { inherited: layer.kind == LayerKind::Parent, ..Scope::default() };
    let scope = descend(layer, layer.node, "", scope, resolved);
    for entry in layer.node.entries() {
        let own = OWN_KEYS.contains(&entry.key.as_str());
        if own && layer.kind == LayerKind::Parent || entry.key == "evidence" && layer.kind != LayerKind::Gpu {
            continue;
        }
        let pointer = format!("/{}", escape(&entry.key));
        let mut inner = scope.clone();
        if entry.key == "features" {
            inner.evidence = layer.node.get("features_evidence").and_then(read_evidence);
        }
        walk(resolved, layer, &entry.value, &pointer, &inner);
    }
}

/// The scope inside a mapping.
fn descend(layer: &Layer<'_>, node: &Node, pointer: &str, outer: Scope, resolved: &Resolved) -> Scope {
    let mut scope = outer;
    if layer.kind == LayerKind::Case {
        let below =
            resolved.value.pointer(&format!("{pointer}/evidence")).and_then(|value| Evidence::deserialize(value).ok());
        if below.is_some() {
            scope.evidence = below;
            scope.inherited = resolved.origin(&format!("{pointer}/evidence")).is_some_and(|origin| origin.inherited);
        }
    }
    if let Some(evidence) = node.get("evidence").and_then(read_evidence) {
        scope.evidence = Some(evidence);
        scope.inherited = layer.kind == LayerKind::Parent;
    }
    if let Some(keys) = node.get("evidence_for") {
        scope.keys =
            keys.entries().iter().filter_map(|entry| Some((entry.key.clone(), read_evidence(&entry.value)?))).collect();
        scope.block = pointer.to_owned();
    }
    scope
}

fn read_evidence(node: &Node) -> Option<Evidence> {
    Evidence::deserialize(node.to_json()).ok()
}

fn walk(resolved: &mut Resolved, layer: &Layer<'_>, node: &Node, pointer: &str, scope: &Scope) {
    match &node.kind {
        NodeKind::Null => remove(resolved, pointer),
        NodeKind::Sequence(_) if layer.kind == LayerKind::Overlay && pointer == LADDERS => {
            join_ladders(resolved, layer, node, scope)
        }
        NodeKind::Mapping(entries) => {
            // Evidence is one statement: a child's replaces the parent's whole.
            if pointer.ends_with("/evidence") {
                remove(resolved, pointer);
            }
            let scope = descend(layer, node, pointer, scope.clone(), resolved);
            ensure_object(resolved, pointer);
            for entry in entries {
                walk(resolved, layer, &entry.value, &format!("{pointer}/{}", escape(&entry.key)), &scope);
            }
        }
        _ => set(resolved, layer, node, pointer, scope),
    }
}

/// Where the ladders of a record stand.
const LADDERS: &str = "/allreduce/preferred";

/// A site measures some world sizes on one topology: its ladders stand before the record's, and replace only those of
/// the same world size, topology and element type.
fn join_ladders(resolved: &mut Resolved, layer: &Layer<'_>, node: &Node, scope: &Scope) {
    let (before, origin) = (resolved.value.pointer(LADDERS).cloned(), resolved.origins.get(LADDERS).cloned());
    set(resolved, layer, node, LADDERS, scope);
    let Some(Value::Array(own)) = resolved.value.pointer_mut(LADDERS) else { return };
    let key = |ladder: &Value| ["world_size", "topology", "dtype"].map(|key| ladder.get(key).cloned());
    let replaced: Vec<_> = own.iter().map(key).collect();
    let Some(Value::Array(before)) = before else { return };
    let kept = before.into_iter().filter(|ladder| !replaced.contains(&key(ladder)));
    own.extend(kept.map(|ladder| with_origin(ladder, origin.as_ref())));
}

/// A ladder that leaves its list takes along what the list said of it.
fn with_origin(mut ladder: Value, origin: Option<&Origin>) -> Value {
    let (Some(origin), Value::Object(fields)) = (origin, &mut ladder) else { return ladder };
    let own = fields.get("evidence").and_then(|value| Evidence::deserialize(value).ok());
    if let Some(mut evidence) = own.or_else(|| origin.evidence.clone()) {
        if origin.inherited {
            evidence.kind = EvidenceKind::Inherited;
        }
        fields.insert("evidence".to_owned(), serde_json::to_value(evidence).unwrap_or_default());
    }
    ladder
}

fn set(resolved: &mut Resolved, layer: &Layer<'_>, node: &Node, pointer: &str, scope: &Scope) {
    remove(resolved, pointer);
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    ensure_object(resolved, parent);
    if let Some(Value::Object(map)) = resolved.value.pointer_mut(parent) {
        map.insert(unescape(key).into_owned(), node.to_json());
    }
    let relative = pointer.strip_prefix(scope.block.as_str()).unwrap_or("").trim_start_matches('/').replace('/', ".");
    let own = scope.keys.iter().find(|(path, _)| *path == relative).map(|(_, evidence)| evidence.clone());
    let line = if layer.bytes.is_empty() { 0 } else { load::line(layer.bytes, node.span.start) };
    let origin = Origin {
        layer: layer.id.to_owned(),
        file: layer.file.to_owned(),
        line,
        inherited: scope.inherited,
        evidence: own.or_else(|| scope.evidence.clone()),
    };
    resolved.origins.insert(pointer.to_owned(), origin);
}

/// Makes sure that a mapping stands at a pointer, replacing anything else.
fn ensure_object(resolved: &mut Resolved, pointer: &str) {
    if resolved.value.pointer(pointer).is_some_and(Value::is_object) {
        return;
    }
    remove(resolved, pointer);
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    ensure_object(resolved, parent);
    if let Some(Value::Object(map)) = resolved.value.pointer_mut(parent) {
        map.insert(unescape(key).into_owned(), Value::Object(Map::new()));
    }
}

fn remove(resolved: &mut Resolved, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(map)) = resolved.value.pointer_mut(parent) {
        map.shift_remove(unescape(key).as_ref());
    }
    let prefix = format!("{pointer}/");
    resolved.origins.remove(pointer);
    let below: Vec<String> = resolved
        .origins
        .range(prefix.clone()..)
        .take_while(|(key, _)| key.starts_with(&prefix))
        .map(|(key, _)| key.clone())
        .collect();
    for key in below {
        resolved.origins.remove(&key);
    }
}

/// Hardly any key holds one of the two characters, so hardly any is copied.
fn escape(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) { Cow::Owned(key.replace('~', "~0").replace('/', "~1")) } else { Cow::Borrowed(key) }
}

fn unescape(key: &str) -> Cow<'_, str> {
    if key.contains('~') { Cow::Owned(key.replace("~1", "/").replace("~0", "~")) } else { Cow::Borrowed(key) }
}
