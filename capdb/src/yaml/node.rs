//! The tree of a file: values with the byte ranges they stand at.

use std::ops::Range;

use serde_json::{Map, Value};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Byte range of the value: quotes included for scalars; of the key for a block mapping or sequence under a key.
    pub span: Range<usize>,
    pub kind: NodeKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// One key of a mapping. Keys are text; an integer key is its decimal text.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_span: Range<usize>,
    pub value: Node,
}

impl Node {
    /// The value of `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            NodeKind::Mapping(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            NodeKind::Mapping(entries) => entries,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::Sequence(items) => items,
            _ => &[],
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The node at a JSON pointer (RFC 6901), e.g. `/allreduce/one_shot`.
    pub fn pointer(&self, pointer: &str) -> Option<&Node> {
        self.walk(pointer).map(|(node, _)| node)
    }

    /// Takes out the value at a JSON pointer; whether there was one.
    pub fn remove(&mut self, pointer: &str) -> bool {
        let Some((parent, key)) = pointer.rsplit_once('/') else { return false };
        let key = key.replace("~1", "/").replace("~0", "~");
        let Some(node) = self.pointer_mut(parent) else { return false };
        let NodeKind::Mapping(entries) = &mut node.kind else { return false };
        let before = entries.len();
        entries.retain(|entry| entry.key != key);
        entries.len() < before
    }

    fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Node> {
        let mut node = self;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            node = match &mut node.kind {
                NodeKind::Mapping(entries) => &mut entries.iter_mut().find(|entry| entry.key == token)?.value,
                NodeKind::Sequence(items) => items.get_mut(token.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(node)
    }

    /// Where the key of the node at a JSON pointer stands; the value's own place for list items and the root.
    pub fn key_span(&self, pointer: &str) -> Option<Range<usize>> {
        self.walk(pointer).map(|(node, key)| key.unwrap_or_else(|| node.span.clone()))
    }

    fn walk(&self, pointer: &str) -> Option<(&Node, Option<Range<usize>>)> {
        let mut place = (self, None);
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            place = match &place.0.kind {
                NodeKind::Mapping(_) => {
                    let entry = place.0.entry(&token)?;
                    (&entry.value, Some(entry.key_span.clone()))
                }
                NodeKind::Sequence(items) => (items.get(token.parse::<usize>().ok()?)?, None),
                _ => return None,
            };
        }
        Some(place)
    }

    /// The same value without places.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(value) => Value::Bool(*value),
            NodeKind::Integer(value) => Value::from(*value),
            NodeKind::Float(value) => Value::from(*value),
            NodeKind::Text(text) => Value::String(text.clone()),
            NodeKind::Sequence(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            NodeKind::Mapping(entries) => Value::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
}
