//! One more operand for a gate.

use capdb::record::{PatchCall, PatchGate};
use tree_sitter::Node;

use super::{Splice, line_head, newline};
use crate::patch::card::Card;
use crate::patch::gate::{Gate, Pass, majors, short};
use crate::patch::literal::Literal;
use crate::patch::python::{Source, SourceError, children, descendants, enclosing};

/// Lets one more card through: a call beside the calls, or a name that is assigned and imported like its neighbour.
pub fn open(
    source: &Source,
    helpers: Option<(&Source, Option<&Source>)>,
    shape: &PatchGate,
    gate: &Gate<'_>,
    card: &Card,
) -> Result<Vec<Splice>, SourceError> {
    match helpers {
        None => Ok(vec![operand(source, gate, &call(source, shape, gate, card)?)?]),
        Some((helpers, attributes)) => by_name(source, helpers, attributes, shape, gate, card),
    }
}

fn last<'a>(source: &Source, gate: &Gate<'a>) -> Result<Node<'a>, SourceError> {
    gate.operands.last().copied().ok_or_else(|| source.shape(source.root(), "the gate has no operand"))
}

/// ` or NEW` behind the last operand; on a line of its own where that one has one.
fn operand(source: &Source, gate: &Gate<'_>, new: &str) -> Result<Splice, SourceError> {
    let last = last(source, gate)?;
    let head = line_head(source.whole(), last.start_byte());
    let text = match head.trim() {
        "or" => format!("{}{head}{new}", newline(source.whole(), last.end_byte())),
        _ => format!(" or {new}"),
    };
    Ok(Splice::insert(last.end_byte(), text))
}

/// `current_platform.is_device_capability(120)`: the one capability where the gate has such a call, else its family.
fn call(source: &Source, shape: &PatchGate, gate: &Gate<'_>, card: &Card) -> Result<String, SourceError> {
    let kind = |operand: &Node<'_>| {
        let method = operand.child_by_field_name("function")?.child_by_field_name("attribute")?;
        shape.calls.get(source.text(method)).copied()
    };
    let exact = gate.operands.iter().find(|operand| kind(operand) == Some(PatchCall::Exact));
    let family = gate.operands.iter().find(|operand| kind(operand) == Some(PatchCall::Family));
    let (operand, capability) = match (exact, family) {
        (Some(operand), _) => (operand, card.major * 10 + card.minor),
        (None, Some(operand)) => (operand, card.major * 10),
        (None, None) => return Err(source.shape(source.root(), "the gate has no call that could be repeated")),
    };
    let function = operand.child_by_field_name("function").map(|node| source.text(node)).unwrap_or_default();
    Ok(format!("{function}({capability})"))
}

/// Repeats the assignment of the last recorded name for the helper of the card's major, and its import where it has one.
fn by_name(
    source: &Source,
    helpers: &Source,
    attributes: Option<&Source>,
    shape: &PatchGate,
    gate: &Gate<'_>,
    card: &Card,
) -> Result<Vec<Splice>, SourceError> {
    let no_term = || source.shape(source.root(), "the record names no term to repeat");
    let (term, pattern) = shape.terms.last().ok_or_else(no_term)?;
    let helper = helper_of(helpers, card)?;
    let name = format!("_{helper}");
    let [assignment] = source.assignments(None, term)[..] else { return Err(no_term()) };
    if !source.assignments(None, &name).is_empty() {
        return Err(source.shape(assignment, format!("`{name}` is assigned in this module already")));
    }
    let right = assignment.child_by_field_name("right").ok_or_else(no_term)?;
    let uses = |wanted: &str| descendants(right).any(|node| node.kind() == "identifier" && source.text(node) == wanted);
    let mut splices = Vec::new();
    let (old, new) = if uses(pattern) {
        splices.push(import(source, pattern, &helper)?);
        (pattern.as_str(), helper.as_str())
    } else {
        attribute(attributes, &helper, source, assignment)?;
        (short(pattern), short(&helper))
    };
    let line = format!("{name} = {}", replaced(source, right, old, new));
    let end = assignment.end_byte();
    splices.push(Splice::insert(end, format!("{}{line}", newline(source.whole(), end))));
    splices.push(operand(source, gate, &name)?);
    Ok(splices)
}

/// The helper for exactly this major, by its systematic name.
fn helper_of(helpers: &Source, card: &Card) -> Result<String, SourceError> {
    let name = format!("is_sm{}0_supported", card.major);
    match majors(helpers, &name) {
        Ok(found) if found.iter().map(|(pass, _)| *pass).eq([Pass::Major(card.major)]) => Ok(name),
        _ => {
            let what = format!("there is no helper `{name}` for major {} alone, so no small edit opens it", card.major);
            Err(helpers.shape(helpers.root(), what))
        }
    }
}

/// The text of an expression with one identifier in place of another.
fn replaced(source: &Source, node: Node<'_>, old: &str, new: &str) -> String {
    let start = node.start_byte();
    let splices = descendants(node)
        .filter(|node| node.kind() == "identifier" && source.text(*node) == old)
        .map(|node| Splice { range: node.start_byte() - start..node.end_byte() - start, text: new.to_owned() });
    super::splice(source.text(node), splices.collect())
}

/// One more name in the import that brings the neighbour.
fn import(source: &Source, neighbour: &str, new: &str) -> Result<Splice, SourceError> {
    let found = source.nodes().find(|node| {
        node.kind() == "dotted_name"
            && source.text(*node) == neighbour
            && node.parent().is_some_and(|parent| parent.kind() == "import_from_statement")
    });
    let not_found = || source.shape(source.root(), format!("`{neighbour}` is not imported by its own name here"));
    let name = found.ok_or_else(not_found)?;
    let statement = enclosing(name, "import_from_statement").ok_or_else(not_found)?;
    if children(statement).iter().any(|node| source.text(*node) == new) {
        return Err(source.shape(statement, format!("`{new}` is imported already, for something else")));
    }
    let head = line_head(source.whole(), name.start_byte());
    if head.trim().is_empty() && !head.is_empty() {
        let comma = name.next_sibling().filter(|node| node.kind() == ",");
        let end = comma.map_or(name.end_byte(), |comma| comma.end_byte());
        let (lead, tail) = if comma.is_some() { ("", ",") } else { (",", "") };
        return Ok(Splice::insert(end, format!("{lead}{}{head}{new}{tail}", newline(source.whole(), end))));
    }
    Ok(Splice::insert(name.end_byte(), format!(", {new}")))
}

/// The platform has an attribute for the helper: `"is_sm120": "is_sm120_supported"`.
fn attribute(
    attributes: Option<&Source>,
    helper: &str,
    source: &Source,
    assignment: Node<'_>,
) -> Result<(), SourceError> {
    let known = attributes.is_some_and(|file| {
        file.nodes().filter(|node| node.kind() == "pair").any(|pair| {
            let text = |name| pair.child_by_field_name(name).and_then(|node| file.evaluate(node).ok());
            text("key") == Some(Literal::Text(short(helper).to_owned()))
                && text("value") == Some(Literal::Text(helper.to_owned()))
        })
    });
    if known {
        Ok(())
    } else {
        Err(source.shape(assignment, format!("no attribute `{}` of the platform is known", short(helper))))
    }
}
