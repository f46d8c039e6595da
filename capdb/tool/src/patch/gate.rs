//! Gates in front of a feature: `is_sm90 or is_sm100`, or `is_family(100) or is_exactly(90)`.

use std::collections::BTreeSet;
use std::fmt;

use capdb::record::{PatchCall, PatchGate};
use tree_sitter::Node;

use super::card::Card;
use super::literal::Literal;
use super::python::{Source, SourceError, children, descendants, enclosing};

/// What one operand of a gate lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Every capability of a major.
    Major(i64),
    /// One capability: major, minor.
    Exact(i64, i64),
}

impl Pass {
    pub fn lets_through(self, card: &Card) -> bool {
        match self {
            Self::Major(major) => card.major == major,
            Self::Exact(major, minor) => (card.major, card.minor) == (major, minor),
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Major(major) => write!(formatter, "{major}.x"),
            Self::Exact(major, minor) => write!(formatter, "{major}.{minor}"),
        }
    }
}

/// A gate as the source has it.
pub struct Gate<'a> {
    pub at: String,
    /// Name of the function that it stands in.
    pub function: String,
    pub expression: String,
    /// What passes, with the place that says so.
    pub passing: Vec<(Pass, String)>,
    /// The operands of its `or`.
    pub operands: Vec<Node<'a>>,
}

/// Finds the one gate of this shape and what passes it. `helpers` is the file that a gate by names says its majors in.
pub fn read<'a>(source: &'a Source, helpers: Option<&Source>, shape: &PatchGate) -> Result<Gate<'a>, SourceError> {
    let (node, operands) = find(source, shape)?;
    let mut passing = Vec::new();
    for operand in &operands {
        match helpers {
            Some(helpers) => passing.extend(by_name(source, helpers, shape, *operand)?),
            None => passing.push((by_call(source, shape, *operand)?, source.at(*operand))),
        }
    }
    let function = enclosing(node, "function_definition")
        .and_then(|function| function.child_by_field_name("name"))
        .map_or_else(|| "the module".to_owned(), |name| format!("{}()", source.text(name)));
    let expression = source.text(node).split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Gate { at: source.at(node), function, expression, passing, operands })
}

/// The one `or` that has every recorded name, or is made of the recorded calls.
fn find<'a>(source: &'a Source, shape: &PatchGate) -> Result<(Node<'a>, Vec<Node<'a>>), SourceError> {
    let is_it = |node: &Node<'a>, operands: &[Node<'a>]| {
        if shape.terms.is_empty() {
            let inside = enclosing(*node, "function_definition").and_then(|it| it.child_by_field_name("name"));
            inside.map(|name| source.text(name)) == shape.function.as_deref()
                && operands.iter().all(|operand| by_call(source, shape, *operand).is_ok())
        } else {
            let names: BTreeSet<&str> = operands.iter().map(|operand| source.text(*operand)).collect();
            operands.iter().all(|operand| operand.kind() == "identifier")
                && shape.terms.keys().all(|term| names.contains(term.as_str()))
        }
    };
    let mut found: Vec<_> = source
        .nodes()
        .filter(|node| is_or(*node) && !node.parent().is_some_and(is_or))
        .map(|node| (node, operands(node)))
        .filter(|(node, operands)| is_it(node, operands))
        .collect();
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let names = shape.terms.keys().chain(shape.calls.keys()).map(String::as_str).collect::<Vec<_>>().join(" or ");
    let what = format!("`{names}` is expected once and stands {} times", found.len());
    Err(source.shape(found.get(1).map_or(source.root(), |(node, _)| *node), what))
}

fn is_or(node: Node<'_>) -> bool {
    node.kind() == "boolean_operator" && node.child_by_field_name("operator").is_some_and(|it| it.kind() == "or")
}

/// `a or b or c` → its three operands. The grammar nests to the left.
fn operands(node: Node<'_>) -> Vec<Node<'_>> {
    let (mut left, mut found) = (Some(node), Vec::new());
    while let Some(node) = left.filter(|node| is_or(*node)) {
        found.extend(node.child_by_field_name("right"));
        left = node.child_by_field_name("left");
    }
    found.extend(left);
    found.reverse();
    found
}

/// `platform.is_exactly(90)`.
fn by_call(source: &Source, shape: &PatchGate, operand: Node<'_>) -> Result<Pass, SourceError> {
    let read = || {
        let method = operand.child_by_field_name("function")?.child_by_field_name("attribute")?;
        let call = shape.calls.get(source.text(method))?;
        let arguments = children(operand.child_by_field_name("arguments")?);
        let [argument] = arguments.as_slice() else { return None };
        let Ok(Literal::Integer(capability)) = source.evaluate(*argument) else { return None };
        let (major, minor) = (capability.div_euclid(10), capability.rem_euclid(10));
        Some(match call {
            PatchCall::Exact => Pass::Exact(major, minor),
            PatchCall::Family => Pass::Major(major),
        })
    };
    read().ok_or_else(|| source.shape(operand, "is not a call that the record knows"))
}

/// The majors behind a name: recorded, or one whose assignment names a helper.
fn by_name(
    source: &Source,
    helpers: &Source,
    shape: &PatchGate,
    operand: Node<'_>,
) -> Result<Vec<(Pass, String)>, SourceError> {
    let term = source.text(operand);
    let [assignment] = source.assignments(None, term)[..] else {
        return Err(source.shape(source.root(), format!("`{term}` is not assigned once in this module")));
    };
    let right: Vec<&str> = assignment
        .child_by_field_name("right")
        .into_iter()
        .flat_map(descendants)
        .filter(|node| node.kind() == "identifier")
        .map(|node| source.text(node))
        .collect();
    // By its full name, or as the platform's attribute without `_supported`.
    let stands_for = |helper: &str| right.contains(&helper) || right.contains(&short(helper));
    if let Some(helper) = shape.terms.get(term) {
        if !stands_for(helper) {
            return Err(source.shape(assignment, format!("`{term}` no longer stands for `{helper}`")));
        }
        return majors(helpers, helper);
    }
    let other = right
        .iter()
        .find_map(|name| majors(helpers, name).or_else(|_| majors(helpers, &format!("{name}_supported"))).ok());
    other.ok_or_else(|| source.shape(assignment, format!("`{term}` stands for no helper that can be read")))
}

/// `is_sm90` for `is_sm90_supported`.
pub fn short(helper: &str) -> &str {
    helper.strip_suffix("_supported").unwrap_or(helper)
}

/// `device_capability_majors=[9]` in the assignment of a helper.
pub fn majors(source: &Source, helper: &str) -> Result<Vec<(Pass, String)>, SourceError> {
    let not_read = |node| source.shape(node, format!("the majors of `{helper}` cannot be read"));
    let [assignment] = source.assignments(None, helper)[..] else { return Err(not_read(source.root())) };
    list_argument(source, assignment, "device_capability_majors").ok_or_else(|| not_read(assignment))
}

/// The integers in the list that a keyword argument below `node` is given, as majors.
pub fn list_argument(source: &Source, node: Node<'_>, name: &str) -> Option<Vec<(Pass, String)>> {
    let argument = descendants(node)
        .find(|node| {
            node.kind() == "keyword_argument"
                && node.child_by_field_name("name").is_some_and(|it| source.text(it) == name)
        })
        .and_then(|node| node.child_by_field_name("value"))?;
    let Ok(Literal::Sequence(items)) = source.evaluate(argument) else { return None };
    let major = |item: &Literal| match item {
        Literal::Integer(major) => Some((Pass::Major(*major), source.at(argument))),
        _ => None,
    };
    items.iter().map(major).collect()
}
