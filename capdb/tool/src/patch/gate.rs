//! Gates: `is_sm90 or is_sm100` in front of a feature.

use std::collections::BTreeSet;

use capdb::record::PatchGate;

use super::literal::Literal;
use super::python::{Source, SourceError, children, descendants, enclosing};

/// A gate as the source has it.
pub struct Gate {
    pub at: String,
    pub function: String,
    pub expression: String,
    /// Majors that pass, with the place that says so.
    pub majors: Vec<(i64, String)>,
}

/// Finds the one `or` over exactly the record's names, and what each name means.
pub fn read(source: &Source, helpers: &Source, gate: &PatchGate) -> Result<Gate, SourceError> {
    let wanted: BTreeSet<&str> = gate.terms.keys().map(String::as_str).collect();
    let is_gate = |node: &tree_sitter::Node<'_>| {
        node.kind() == "boolean_operator"
            && node.child_by_field_name("operator").is_some_and(|operator| operator.kind() == "or")
            && children(*node).iter().all(|part| part.kind() == "identifier")
            && children(*node).into_iter().map(|part| source.text(part)).collect::<BTreeSet<_>>() == wanted
    };
    let found: Vec<_> = source.nodes().filter(is_gate).collect();
    let [node] = found.as_slice() else {
        let names = gate.terms.keys().cloned().collect::<Vec<_>>().join(" or ");
        let what = format!("`{names}` is expected once and stands {} times", found.len());
        return Err(source.shape(found.get(1).copied().unwrap_or(source.root()), what));
    };
    let mut majors = Vec::new();
    for (term, helper) in &gate.terms {
        check_term(source, term, helper)?;
        majors.extend(helper_majors(helpers, helper)?);
    }
    let function = enclosing(*node, "function_definition")
        .and_then(|function| function.child_by_field_name("name"))
        .map_or_else(|| "the module".to_owned(), |name| format!("{}()", source.text(name)));
    Ok(Gate { at: source.at(*node), function, expression: source.text(*node).to_owned(), majors })
}

/// The name in the gate is assigned from its helper, by its full name or as the platform's attribute without `_supported`.
fn check_term(source: &Source, term: &str, helper: &str) -> Result<(), SourceError> {
    let short = helper.strip_suffix("_supported").unwrap_or(helper);
    let [assignment] = source.assignments(None, term)[..] else {
        return Err(source.shape(source.root(), format!("`{term}` is not assigned once in this module")));
    };
    let names =
        |node: tree_sitter::Node<'_>| node.kind() == "identifier" && [helper, short].contains(&source.text(node));
    if assignment.child_by_field_name("right").is_some_and(|right| descendants(right).any(names)) {
        Ok(())
    } else {
        Err(source.shape(assignment, format!("`{term}` no longer stands for `{helper}`")))
    }
}

/// `device_capability_majors=[9]` in the assignment of a helper.
fn helper_majors(source: &Source, helper: &str) -> Result<Vec<(i64, String)>, SourceError> {
    let not_read = |node| source.shape(node, format!("the majors of `{helper}` cannot be read"));
    let [assignment] = source.assignments(None, helper)[..] else { return Err(not_read(source.root())) };
    let argument = descendants(assignment)
        .find(|node| {
            node.kind() == "keyword_argument"
                && node.child_by_field_name("name").is_some_and(|it| source.text(it) == "device_capability_majors")
        })
        .and_then(|node| node.child_by_field_name("value"))
        .ok_or_else(|| not_read(assignment))?;
    let Literal::Sequence(items) = source.evaluate(argument)? else { return Err(not_read(argument)) };
    items
        .iter()
        .map(|item| match item {
            Literal::Integer(major) => Ok((*major, source.at(argument))),
            _ => Err(not_read(argument)),
        })
        .collect()
}
