//! Sizes, versions, bandwidths and world sizes: each is read by its own type, whose error and hint say more than a schema's
//! pattern could.

use std::ops::Range;

use capdb::problem::Problem;
use capdb::quantity::{Bandwidth, Size, SizeError, Version};
use capdb::record::{WORLD_SIZE_LIMITS, date_fault};
use capdb::yaml::{Entry, Node, NodeKind};

use super::suggest;
use crate::schema::Shape;

/// Checks every value below `node` whose type is known here.
pub(super) fn check(path: &str, text: &str, node: &Node, shape: Shape<'_>) -> Vec<Problem> {
    let mut checker = Checker { path, text, problems: Vec::new() };
    checker.visit(node, shape, "");
    checker.problems
}

struct Checker<'a> {
    path: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn visit(&mut self, node: &Node, shape: Shape<'_>, key: &str) {
        let shape = shape.alternative(json_type(node)).map_or(shape, |(_, chosen)| chosen);
        match shape.type_name() {
            // A pattern cannot know how many days a month has.
            _ if key == "date" && shape.wants_text() => return self.text_value(node, date_fault),
            Some("Size") => return self.size(node),
            Some("Version") => {
                return self.text_value(node, |text| text.parse::<Version>().err().map(|e| e.to_string()));
            }
            Some("Bandwidth") => {
                return self.text_value(node, |text| text.parse::<Bandwidth>().err().map(|e| e.to_string()));
            }
            _ => {}
        }
        let format = shape.keyword("format").and_then(|format| format.as_str());
        match (&node.kind, format) {
            (NodeKind::Integer(number), _) if key == "world_sizes" => self.world_size(*number, node.span.clone()),
            (NodeKind::Integer(number), Some("uint32")) => self.unsigned(*number, node.span.clone()),
            // To a schema 12.0 is an integer, to the types it is none.
            (NodeKind::Float(number), Some(format)) if number.fract() == 0.0 && format.contains("int") => {
                let message = format!("`{}` is a number with a point", self.source(&node.span));
                self.push("wrong-type", &node.span, message, "write the whole number");
            }
            _ => {}
        }
        for item in node.items() {
            if let Some(child) = shape.child("0") {
                self.visit(item, child, key);
            }
        }
        for entry in node.entries() {
            if shape.is_number_map() {
                self.world_size_key(entry);
            }
            if let Some(child) = shape.child(&entry.key) {
                self.visit(&entry.value, child, &entry.key);
            }
        }
    }

    fn push(&mut self, code: &'static str, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(Problem::error(code, self.path, span.clone(), message).hint(hint));
    }

    fn size(&mut self, node: &Node) {
        let result = match &node.kind {
            NodeKind::Integer(bytes) => {
                u64::try_from(*bytes).map_err(|_| SizeError::Negative).and_then(Size::from_bytes)
            }
            NodeKind::Text(text) => text.parse(),
            NodeKind::Float(_) | NodeKind::Bool(_) => Err(SizeError::NotASize(self.source(&node.span))),
            // The schema says what it wants instead of nothing, a list or a mapping.
            NodeKind::Null | NodeKind::Sequence(_) | NodeKind::Mapping(_) => return,
        };
        let Err(error) = result else { return };
        let code = match &error {
            SizeError::Zero => "size-zero",
            SizeError::TooLarge(_) => "size-too-large",
            SizeError::Negative => "size-negative",
            SizeError::Ambiguous { .. } => "ambiguous-unit",
            SizeError::UnknownUnit { .. } => "unknown-unit",
            SizeError::NotASize(_) => "not-a-size",
        };
        let mut problem = Problem::error(code, self.path, node.span.clone(), error.to_string()).hint(error.hint());
        if let SizeError::UnknownUnit { unit } = &error
            && let Some(near) = suggest::nearest(unit, ["KiB", "MiB", "GiB"])
        {
            problem = problem.label(format!("did you mean `{near}`?"));
        }
        self.problems.push(problem);
    }

    fn text_value(&mut self, node: &Node, error: fn(&str) -> Option<String>) {
        match &node.kind {
            NodeKind::Text(text) => {
                if let Some(message) = error(text) {
                    self.problems.push(Problem::error("bad-format", self.path, node.span.clone(), message));
                }
            }
            NodeKind::Integer(_) | NodeKind::Float(_) => self.problems.push(unquoted(self.path, self.text, node)),
            _ => {}
        }
    }

    fn world_size(&mut self, number: i64, span: Range<usize>) {
        if !u32::try_from(number).is_ok_and(|number| WORLD_SIZE_LIMITS.contains(&number)) {
            let hint = "a world size counts the ranks of one all-reduce; rows begin at 2";
            self.push("world-size", &span, format!("{number} is not a world size from 2 to 1024"), hint);
        }
    }

    fn world_size_key(&mut self, entry: &Entry) {
        let fits = entry.key.parse().is_ok_and(|number| WORLD_SIZE_LIMITS.contains(&number));
        if !fits || entry.key.starts_with(['0', '+']) {
            let message = format!("`{}` is not a world size from 2 to 1024", entry.key);
            self.push("world-size", &entry.key_span, message, "the keys of this mapping are numbers of ranks");
        }
    }

    fn unsigned(&mut self, number: i64, span: Range<usize>) {
        if u32::try_from(number).is_err() {
            let message = format!("{number} is not a count");
            self.push("out-of-range", &span, message, "give a whole number from 0 to 4294967295");
        }
    }

    fn source(&self, span: &Range<usize>) -> String {
        self.text.get(span.clone()).unwrap_or_default().to_owned()
    }
}

/// The JSON type of a value, as schemas name it.
pub(super) const fn json_type(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Null => "null",
        NodeKind::Bool(_) => "boolean",
        NodeKind::Integer(_) => "integer",
        NodeKind::Float(_) => "number",
        NodeKind::Text(_) => "string",
        NodeKind::Sequence(_) => "array",
        NodeKind::Mapping(_) => "object",
    }
}

/// A number where a text is wanted: quotes are missing.
pub(super) fn unquoted(path: &str, text: &str, node: &Node) -> Problem {
    let written = text.get(node.span.clone()).unwrap_or_default();
    Problem::error(
        "quote-required",
        path,
        node.span.clone(),
        format!("`{written}` is a number here, and must be a text"),
    )
    .label("without quotes a reader may see 12.0 as 12, and 1.10 as 1.1")
    .hint("put it in quotes")
    .fix(format!("\"{written}\""))
}
