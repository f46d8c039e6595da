//! Tests elsewhere in the source that overrule a table: an `if` that warns and returns, and a `min` that clips.

use capdb::record::PatchCondition;
use tree_sitter::Node;

use super::literal::excerpt;
use super::python::{Source, SourceError, children, descendants, enclosing};
use super::table;

/// The one `if` that uses all the names, warns and returns.
pub fn find<'a>(source: &'a Source, condition: &PatchCondition) -> Result<Node<'a>, SourceError> {
    let names_all = |test: Node<'_>| {
        condition
            .names
            .iter()
            .all(|name| descendants(test).any(|node| node.kind() == "identifier" && source.text(node) == name.as_str()))
    };
    let found: Vec<Node<'_>> = source
        .nodes()
        .filter(|node| node.kind() == "if_statement" && leaves(*node) && warns(source, *node))
        .filter(|node| node.child_by_field_name("condition").is_some_and(names_all))
        .collect();
    let names = condition.names.join("`, `");
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(source.shape(source.root(), format!("no `if` on `{names}` warns and returns here"))),
        [_, second, ..] => Err(source.shape(*second, format!("more than one `if` on `{names}` warns and returns"))),
    }
}

/// Whether the body of an `if` ends the function.
pub fn leaves(statement: Node<'_>) -> bool {
    let body = statement.child_by_field_name("consequence").map(children).unwrap_or_default();
    body.iter().any(|node| matches!(node.kind(), "return_statement" | "raise_statement"))
}

/// Whether the body of an `if` logs a warning.
pub fn warns(source: &Source, statement: Node<'_>) -> bool {
    let Some(body) = statement.child_by_field_name("consequence") else { return false };
    descendants(body).filter(|node| node.kind() == "call").any(|call| {
        let function = call.child_by_field_name("function").map(|node| source.text(node)).unwrap_or_default();
        matches!(function.rsplit('.').next(), Some("warning" | "warning_once" | "warn" | "error"))
    })
}

/// The default that `min(TABLE[…], name)` clips a table to, with its place.
pub fn clip(source: &Source, name: &str) -> Option<(u64, String)> {
    let uses = source.nodes().filter(|node| node.kind() == "identifier" && source.text(*node) == name);
    uses.filter_map(|node| {
        let arguments = enclosing(node, "argument_list")?;
        let call = arguments.parent()?;
        if call.child_by_field_name("function").map(|node| source.text(node)) != Some("min") {
            return None;
        }
        let parts = children(arguments);
        let other = parts.iter().find(|part| part.kind() == "identifier")?;
        let parameters = enclosing(call, "function_definition")?.child_by_field_name("parameters")?;
        let default = children(parameters).into_iter().find(|parameter| {
            parameter.child_by_field_name("name").is_some_and(|it| source.text(it) == source.text(*other))
        })?;
        let limit = source.evaluate(default.child_by_field_name("value")?).ok()?.as_number()?;
        Some((table::bytes(limit)?, source.at(call)))
    })
    .next()
}

/// A place that raises what a table gave: `x = max(x, N)` in the function that looks the table up.
pub struct Raise {
    pub limit: u64,
    pub at: String,
    /// The `if` that it stands under.
    pub when: Option<String>,
}

/// Every raise behind the first use of `name`.
pub fn raises(source: &Source, name: &str) -> Vec<Raise> {
    let is_use = |node: &Node<'_>| node.kind() == "identifier" && source.text(*node) == name;
    let Some(function) = source.nodes().filter(is_use).find_map(|node| enclosing(node, "function_definition")) else {
        return Vec::new();
    };
    descendants(function).filter(|node| node.kind() == "assignment").filter_map(|node| raise(source, node)).collect()
}

fn raise(source: &Source, assignment: Node<'_>) -> Option<Raise> {
    let target = source.text(assignment.child_by_field_name("left")?);
    let call = assignment.child_by_field_name("right").filter(|node| node.kind() == "call")?;
    if source.text(call.child_by_field_name("function")?) != "max" {
        return None;
    }
    let arguments = children(call.child_by_field_name("arguments")?);
    let [first, second] = arguments.as_slice() else { return None };
    let limit = (source.text(*first) == target).then(|| source.evaluate(*second).ok())??.as_number()?;
    let when = enclosing(assignment, "if_statement")
        .and_then(|statement| statement.child_by_field_name("condition"))
        .map(|test| excerpt(source.text(test)));
    Some(Raise { limit: table::bytes(limit)?, at: source.at(assignment), when })
}
