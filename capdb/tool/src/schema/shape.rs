//! Looking up what a schema says about one place of a file, for messages that name the alternatives.

use serde_json::{Map, Value};

/// A schema node with references followed. Our schemas are trees of `properties`, `items` and `$ref`; alternatives occur
/// only as lists of words.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    root: &'a Value,
    node: &'a Value,
    name: Option<&'a str>,
}

impl<'a> Shape<'a> {
    pub fn root(root: &'a Value) -> Self {
        Self { root, node: root, name: root.get("title").and_then(Value::as_str) }
    }

    fn follow(self, node: &'a Value) -> Self {
        let mut shape = Self { node, name: None, ..self };
        // A chain of references is as short as the schema is deep; the bound is against circles.
        for _ in 0..16 {
            let Some(reference) = shape.node.get("$ref").and_then(Value::as_str) else { break };
            let Some(target) = reference.strip_prefix('#').and_then(|pointer| shape.root.pointer(pointer)) else {
                break;
            };
            shape = Self { node: target, name: reference.rsplit('/').next(), ..shape };
        }
        shape
    }

    /// Where alternatives are allowed, e.g. a size or a mapping: the one for a value of the JSON type `kind`, and its place
    /// among them.
    pub fn alternative(self, kind: &str) -> Option<(usize, Self)> {
        let alternatives = self.node.get("anyOf").and_then(Value::as_array)?;
        let takes = |shape: Self| match shape.node.get("type") {
            Some(Value::String(word)) => word == kind,
            Some(Value::Array(words)) => words.iter().any(|word| word == kind),
            _ => false,
        };
        alternatives.iter().map(|node| self.follow(node)).enumerate().find(|(_, shape)| takes(*shape))
    }

    /// The shape below a key of a mapping or an item of a list.
    pub fn child(self, key: &str) -> Option<Self> {
        if let Some((_, mapping)) = self.alternative("object") {
            return mapping.child(key);
        }
        if let Some(node) = self.object("properties").and_then(|properties| properties.get(key)) {
            return Some(self.follow(node));
        }
        if self.is_number_map() && key.bytes().all(|byte| byte.is_ascii_digit()) && !key.is_empty() {
            return self.object("patternProperties")?.values().next().map(|node| self.follow(node));
        }
        match self.node.get("additionalProperties") {
            Some(node @ Value::Object(_)) => Some(self.follow(node)),
            _ => self.node.get("items").map(|node| self.follow(node)),
        }
    }

    /// The shape at a JSON pointer below this one.
    pub fn at(self, pointer: &str) -> Option<Self> {
        pointer
            .split('/')
            .skip(1)
            .try_fold(self, |shape, token| shape.child(&token.replace("~1", "/").replace("~0", "~")))
    }

    /// Name of the type, e.g. `Size`, where it has one.
    pub fn type_name(self) -> Option<&'a str> {
        self.name
    }

    /// Whether the keys are numbers, as in limits by world size.
    pub fn is_number_map(self) -> bool {
        self.object("patternProperties").is_some_and(|patterns| patterns.keys().any(|pattern| pattern == r"^\d+$"))
    }

    /// Known keys of a mapping.
    pub fn keys(self) -> Vec<&'a str> {
        self.object("properties").map(|properties| properties.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// The words that are allowed here, if it is a closed list.
    pub fn words(self) -> Option<Vec<&'a str>> {
        words(self.node)
    }

    pub fn description(self) -> Option<&'a str> {
        self.node.get("description").and_then(Value::as_str)
    }

    pub fn keyword(self, keyword: &str) -> Option<&'a Value> {
        self.node.get(keyword)
    }

    /// Whether a text, and not a number, is wanted.
    pub fn wants_text(self) -> bool {
        match self.node.get("type") {
            Some(Value::String(kind)) => kind == "string",
            Some(_) => false,
            None => self.words().is_some(),
        }
    }

    fn object(self, keyword: &str) -> Option<&'a Map<String, Value>> {
        self.node.get(keyword).and_then(Value::as_object)
    }
}

/// `enum`, `const` and alternatives of them, as one list. `None` if anything else is allowed too.
pub(super) fn words(node: &Value) -> Option<Vec<&str>> {
    if let Some(word) = node.get("const") {
        return Some(vec![word.as_str()?]);
    }
    if let Some(Value::Array(words)) = node.get("enum") {
        return words.iter().map(Value::as_str).collect();
    }
    let Some(Value::Array(alternatives)) = node.get("oneOf") else { return None };
    let lists: Option<Vec<Vec<&str>>> = alternatives.iter().map(words).collect();
    lists.map(|lists| lists.concat())
}
