//! What the JSON Schema refuses, said in words of the file: which key, what stands there, what could.

use std::ops::Range;

use capdb::problem::{Problem, Severity};
use capdb::yaml::{Node, NodeKind};
use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::{suggest, values};
use crate::schema::Shape;

/// A file under its schema.
pub(super) struct Subject<'a> {
    pub path: &'a str,
    pub text: &'a str,
    pub root: &'a Node,
    pub shape: Shape<'a>,
    /// Written for a newer minor version: unknown keys are warnings.
    pub lenient: bool,
}

/// Everything that `validator` refuses.
pub(super) fn check(subject: &Subject<'_>, validator: &Validator) -> Vec<Problem> {
    let value = subject.root.to_json();
    if validator.is_valid(&value) {
        return Vec::new();
    }
    validator.iter_errors(&value).flat_map(|error| subject.explain(&error)).collect()
}

/// A place that an error is about.
struct Place<'a> {
    shape: Option<Shape<'a>>,
    node: &'a Node,
    /// Of the value, or of its key where the value is a block.
    span: Range<usize>,
    /// Last word of its path: the key, or the list of an item.
    name: String,
}

impl<'a> Subject<'a> {
    fn place(&self, pointer: &str) -> Option<Place<'a>> {
        let node = self.root.pointer(pointer)?;
        let is_block = matches!(node.kind, NodeKind::Mapping(_) | NodeKind::Sequence(_));
        let span = if is_block { self.root.key_span(pointer)? } else { node.span.clone() };
        let name = pointer.rsplit('/').find(|token| token.parse::<usize>().is_err()).unwrap_or("");
        let is_item = pointer.rsplit('/').next().is_some_and(|token| token.parse::<usize>().is_ok())
            && !is_key(self.root, pointer);
        let name = match (name, is_item) {
            ("", _) => "the file".into(),
            (name, true) => format!("an item of `{name}`"),
            (name, false) => format!("`{name}`"),
        };
        let span = if pointer.is_empty() { 0..0 } else { span };
        let shape = self.shape.at(pointer);
        let shape = shape.map(|shape| shape.alternative(values::json_type(node)).map_or(shape, |(_, chosen)| chosen));
        Some(Place { shape, node, span, name })
    }

    fn explain(&self, error: &ValidationError<'_>) -> Vec<Problem> {
        let Some(place) = self.place(error.instance_path().as_str()) else {
            return vec![self.error("schema", &(0..0), error.to_string())];
        };
        match error.kind() {
            Kind::AdditionalProperties { unexpected } => self.unknown_keys(&place, unexpected),
            Kind::Required { property } => vec![self.missing(&place, property.as_str().unwrap_or_default())],
            // Quantities were read by their own types already.
            _ if matches!(place.shape.and_then(Shape::type_name), Some("Size" | "Version" | "Bandwidth"))
                && is_scalar(place.node) =>
            {
                Vec::new()
            }
            _ if matches!(place.node.kind, NodeKind::Null) => vec![self.empty(&place)],
            Kind::AnyOf { context } => self.alternatives(error, context),
            Kind::Type { .. } => vec![self.wrong_type(&place)],
            Kind::Enum { .. } | Kind::Constant { .. } | Kind::OneOfNotValid { .. } => {
                vec![self.unknown_word(&place, error)]
            }
            Kind::Pattern { pattern } => vec![self.bad_format(&place, pattern)],
            Kind::MinLength { .. } | Kind::MinItems { .. } => {
                vec![self.error("empty-value", &place.span, format!("{} must not be empty", place.name))]
            }
            _ => vec![self.out_of_range(&place, error)],
        }
    }

    /// What is wrong with the alternative that the value looks like; with none of them, the type.
    fn alternatives(&self, error: &ValidationError<'_>, context: &[Vec<ValidationError<'_>>]) -> Vec<Problem> {
        let pointer = error.instance_path().as_str();
        let (Some(shape), Some(node)) = (self.shape.at(pointer), self.root.pointer(pointer)) else { return Vec::new() };
        match shape.alternative(values::json_type(node)).and_then(|(index, _)| context.get(index)) {
            Some(errors) => errors.iter().flat_map(|error| self.explain(error)).collect(),
            None => {
                let span = self.root.key_span(pointer).unwrap_or(0..0);
                let name = pointer.rsplit('/').next().unwrap_or_default();
                let message = format!("`{name}` cannot be {}", kind_word(node));
                let problem = self.error("wrong-type", &span, message);
                vec![match shape.alternative("string") {
                    Some(_) if is_scalar(node) => problem.hint("put it in quotes"),
                    _ => problem.hint(shape.description().unwrap_or("the schema names the forms that it can have")),
                }]
            }
        }
    }

    fn error(&self, code: &'static str, span: &Range<usize>, message: impl Into<String>) -> Problem {
        Problem::error(code, self.path, span.clone(), message)
    }

    fn unknown_keys(&self, place: &Place<'_>, unexpected: &[String]) -> Vec<Problem> {
        if place.shape.is_some_and(Shape::is_number_map) {
            // Keys of a mapping by world size were checked with the values.
            return Vec::new();
        }
        let known = place.shape.map(Shape::keys).unwrap_or_default();
        let unused: Vec<&str> = known.iter().copied().filter(|key| place.node.get(key).is_none()).collect();
        let mut problems = Vec::new();
        for key in unexpected {
            let Some(entry) = place.node.entry(key) else { continue };
            let (hint, near) = suggest::hint(key, &unused);
            let mut problem =
                self.error("unknown-field", &entry.key_span, format!("{} has no key `{key}`", place.name));
            problem = problem.hint(hint);
            if self.lenient {
                problem.code = "newer-field";
                problem.severity = Severity::Warning;
                problem.hint = Some("a newer schema version may have it; it is left out here".into());
            } else if let Some(near) = near {
                problem = problem.fix(near);
            }
            problems.push(problem);
        }
        problems
    }

    fn missing(&self, place: &Place<'_>, key: &str) -> Problem {
        if place.shape.and_then(Shape::type_name) == Some("StackRange") {
            return self
                .error("open-ended-range", &place.span, format!("the range {} has no `{key}`", place.name))
                .hint("nobody tested the future: give the first and the last version that is known to be bad");
        }
        let about = place.shape.and_then(|shape| shape.child(key)).and_then(Shape::description);
        let problem = self.error("missing-field", &place.span, format!("{} needs the key `{key}`", place.name));
        match about {
            Some(about) => problem.hint(format!("`{key}`: {}", about.lines().next().unwrap_or_default())),
            None => problem,
        }
    }

    fn empty(&self, place: &Place<'_>) -> Problem {
        self.error("empty-value", &place.span, format!("{} has no value", place.name))
            .hint("give it one, or remove the key; only the `record` of a case may remove a value with null")
    }

    fn wrong_type(&self, place: &Place<'_>) -> Problem {
        let wants_text = place.shape.is_some_and(Shape::wants_text);
        if wants_text && matches!(place.node.kind, NodeKind::Integer(_) | NodeKind::Float(_)) {
            return values::unquoted(self.path, self.text, place.node);
        }
        let wanted = place.shape.and_then(|shape| shape.keyword("type")).map_or("something else".into(), type_words);
        let message = format!("{} must be {wanted}, and is {}", place.name, kind_word(place.node));
        let problem = self.error("wrong-type", &place.span, message);
        match place.node.text() {
            Some(text) if text.parse::<i64>().is_ok() => problem.hint("take the quotes away").fix(text.to_owned()),
            _ => match place.shape.and_then(Shape::description) {
                Some(about) => problem.hint(about.lines().next().unwrap_or_default()),
                None => problem,
            },
        }
    }

    fn unknown_word(&self, place: &Place<'_>, error: &ValidationError<'_>) -> Problem {
        let Some(words) = place.shape.and_then(Shape::words) else {
            return self.error("schema", &place.span, error.to_string());
        };
        let Some(text) = place.node.text() else {
            let message = format!("{} must be a word, and is {}", place.name, kind_word(place.node));
            return self.error("wrong-type", &place.span, message).hint(format!("one of {}", words.join(", ")));
        };
        let (hint, near) = suggest::hint(text, &words);
        let message = format!("{} cannot be `{text}`", place.name);
        let problem = self.error("unknown-word", &place.span, message).hint(hint);
        match near {
            Some(near) => problem.fix(near),
            None => problem,
        }
    }

    fn bad_format(&self, place: &Place<'_>, pattern: &str) -> Problem {
        let text = place.node.text().unwrap_or_default();
        let hint = match place.name.as_str() {
            "`id`" => "lower-case letters and digits, with single hyphens between them".to_owned(),
            "`compute_capability`" => "major and minor number in quotes, e.g. \"12.0\"".to_owned(),
            _ => format!("it must match {pattern}"),
        };
        self.error("bad-format", &place.span, format!("{} cannot be `{text}`", place.name)).hint(hint)
    }

    fn out_of_range(&self, place: &Place<'_>, error: &ValidationError<'_>) -> Problem {
        let limit = |keyword| place.shape.and_then(|shape| shape.keyword(keyword)).map(ToString::to_string);
        let code = if place.name == "`world_size`" { "world-size" } else { "out-of-range" };
        let problem = self.error(code, &place.span, format!("{}: {error}", place.name));
        match (limit("minimum"), limit("maximum")) {
            (Some(from), Some(to)) => problem.hint(format!("give a number from {from} to {to}")),
            _ => problem,
        }
    }
}

/// Whether a pointer ends in a key of a mapping and not in an item of a list.
fn is_key(root: &Node, pointer: &str) -> bool {
    let parent = pointer.rsplit_once('/').and_then(|(parent, _)| root.pointer(parent));
    parent.is_some_and(|parent| matches!(parent.kind, NodeKind::Mapping(_)))
}

fn is_scalar(node: &Node) -> bool {
    !matches!(node.kind, NodeKind::Mapping(_) | NodeKind::Sequence(_) | NodeKind::Null)
}

fn kind_word(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Null => "empty",
        NodeKind::Bool(_) => "a boolean",
        NodeKind::Integer(_) => "an integer",
        NodeKind::Float(_) => "a number with a point",
        NodeKind::Text(_) => "a text",
        NodeKind::Sequence(_) => "a list",
        NodeKind::Mapping(_) => "a mapping",
    }
}

fn type_words(kind: &Value) -> String {
    let word = |kind: &Value| match kind.as_str() {
        Some("string") => "a text",
        Some("integer") => "an integer",
        Some("number") => "a number",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a mapping",
        _ => "something else",
    };
    match kind {
        Value::Array(kinds) => kinds.iter().map(word).collect::<Vec<_>>().join(" or "),
        _ => word(kind).to_owned(),
    }
}
