//! What the source does when a row is missing, read from the code around the lookup.

use tree_sitter::Node;

use super::condition;
use super::literal::{Literal, excerpt};
use super::python::{Source, SourceError, children, descendants, enclosing};
use super::report::Effect;

/// What happens without a row.
pub struct Behaviour {
    pub effect: Effect,
    /// `file:line` that does it.
    pub at: String,
    pub what: String,
}

/// One use of a table.
enum Use<'a> {
    Subscript { key: Node<'a> },
    Get { call: Node<'a>, default: Option<Node<'a>> },
    Membership { negated: bool },
}

/// Reads every use of `name` in a file; the first one in the order of the text decides.
pub fn read(source: &Source, name: &str, major: i64) -> Result<Behaviour, SourceError> {
    let uses: Vec<Node<'_>> = source.nodes().filter(|node| is_use(source, *node, name)).collect();
    let Some(first) = uses.first() else {
        return Err(source.shape(source.root(), format!("`{name}` is not looked up where it is expected")));
    };
    let function = enclosing(*first, "function_definition")
        .ok_or_else(|| source.shape(*first, format!("`{name}` is used outside of a function")))?;
    if let Some(other) = uses.iter().find(|node| enclosing(**node, "function_definition") != Some(function)) {
        return Err(source.shape(*other, format!("`{name}` is used in a second function, which is not understood")));
    }
    let expression = whole(*first);
    if enclosing(expression, "try_statement").is_some_and(|node| node.byte_range().start > function.byte_range().start)
    {
        return Err(source.shape(expression, format!("`{name}` is looked up inside `try`, which is not understood")));
    }
    match classify(source, expression) {
        Some(Use::Subscript { key }) => Ok(subscript(source, function, expression, key, major)),
        Some(Use::Get { call, default }) => get(source, function, call, default),
        Some(Use::Membership { negated }) => membership(source, expression, negated),
        None => Err(source.shape(expression, format!("this use of `{name}` is not understood"))),
    }
}

fn is_use(source: &Source, node: Node<'_>, name: &str) -> bool {
    node.kind() == "identifier"
        && source.text(node) == name
        && enclosing(node, "import_from_statement").is_none()
        && !node
            .parent()
            .is_some_and(|parent| parent.kind() == "assignment" && parent.child_by_field_name("left") == Some(node))
}

/// `self._TABLE` for the `_TABLE` in it.
fn whole(node: Node<'_>) -> Node<'_> {
    match node.parent() {
        Some(parent) if parent.kind() == "attribute" && parent.child_by_field_name("attribute") == Some(node) => parent,
        _ => node,
    }
}

fn classify<'a>(source: &'a Source, expression: Node<'a>) -> Option<Use<'a>> {
    let parent = expression.parent()?;
    match parent.kind() {
        "subscript" if parent.child_by_field_name("value") == Some(expression) => {
            Some(Use::Subscript { key: parent.child_by_field_name("subscript")? })
        }
        "attribute" => {
            let call = parent.parent().filter(|node| node.kind() == "call")?;
            let method = source.text(parent.child_by_field_name("attribute")?);
            let arguments = children(call.child_by_field_name("arguments")?);
            (method == "get" && call.child_by_field_name("function") == Some(parent) && !arguments.is_empty())
                .then(|| Use::Get { call, default: arguments.get(1).copied() })
        }
        "comparison_operator" if children(parent).last() == Some(&expression) => {
            let mut cursor = parent.walk();
            let operators: Vec<&str> =
                parent.children_by_field_name("operators", &mut cursor).map(|node| node.kind()).collect();
            match operators.as_slice() {
                ["in"] => Some(Use::Membership { negated: false }),
                ["not in"] => Some(Use::Membership { negated: true }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `TABLE[key]`: a KeyError, unless a test of the same key against a number returned before.
fn subscript(source: &Source, function: Node<'_>, at: Node<'_>, key: Node<'_>, major: i64) -> Behaviour {
    let key_text = source.text(key);
    let guard = descendants(function)
        .take_while(|node| node.start_byte() < at.start_byte())
        .filter(|node| node.kind() == "if_statement" && condition::leaves(*node))
        .find(|node| node.child_by_field_name("condition").is_some_and(|test| below(source, test, key_text, major)));
    if let Some(guard) = guard {
        let (effect, what) = off(condition::warns(source, guard));
        return Behaviour { effect, at: source.at(guard), what: format!("`{}` {what}", test_text(source, guard)) };
    }
    let what = format!("`{}` raises KeyError", excerpt(at.parent().map_or("", |node| source.text(node))));
    Behaviour { effect: Effect::WouldCrash, at: source.at(at), what }
}

/// Whether a test is `key < N` and holds. Only for tables that are keyed by the major number.
fn below(source: &Source, test: Node<'_>, key: &str, major: i64) -> bool {
    let parts = children(test);
    let operator = test.child_by_field_name("operators").map(|node| node.kind());
    let [left, right] = parts.as_slice() else { return false };
    test.kind() == "comparison_operator"
        && operator == Some("<")
        && source.text(*left) == key
        && matches!(source.evaluate(*right), Ok(Literal::Integer(limit)) if major < limit)
}

/// `TABLE.get(key)` followed by `is None`, or `TABLE.get(key, default)`.
fn get(
    source: &Source,
    function: Node<'_>,
    call: Node<'_>,
    default: Option<Node<'_>>,
) -> Result<Behaviour, SourceError> {
    if let Some(default) = default {
        let what = format!("the lookup goes on with `{}`, without a word", excerpt(source.text(default)));
        return Ok(Behaviour { effect: Effect::SilentFallback, at: source.at(call), what });
    }
    let not_understood = || source.shape(call, "what follows a missing row is not understood");
    let target = call
        .parent()
        .filter(|node| node.kind() == "assignment")
        .and_then(|node| node.child_by_field_name("left"))
        .ok_or_else(not_understood)?;
    let wanted = format!("{} is None", source.text(target));
    let guard = descendants(function)
        .filter(|node| node.kind() == "if_statement" && node.start_byte() > call.start_byte())
        .find(|node| test_text(source, *node) == wanted && condition::leaves(*node));
    let Some(guard) = guard else {
        let node = none_for_none(source, function, call, &wanted).ok_or_else(not_understood)?;
        let what = format!("`{}`, without a word", excerpt(source.text(node)));
        return Ok(Behaviour { effect: Effect::SilentFallback, at: source.at(node), what });
    };
    let (effect, what) = off(condition::warns(source, guard));
    Ok(Behaviour { effect, at: source.at(guard), what: format!("`{wanted}` {what}") })
}

/// `return None if row is None else …` behind the lookup: the caller goes on without a row.
fn none_for_none<'a>(source: &Source, function: Node<'a>, call: Node<'_>, wanted: &str) -> Option<Node<'a>> {
    descendants(function)
        .filter(|node| node.kind() == "return_statement" && node.start_byte() > call.start_byte())
        .find(|node| {
            let value = children(*node).into_iter().next().filter(|value| value.kind() == "conditional_expression");
            let parts: Vec<&str> = value.map(children).unwrap_or_default().iter().map(|it| source.text(*it)).collect();
            matches!(parts.as_slice(), ["None", test, _] if *test == wanted)
        })
}

/// `if key not in TABLE: return`, or `if key in TABLE: use it`.
fn membership(source: &Source, expression: Node<'_>, negated: bool) -> Result<Behaviour, SourceError> {
    let statement = enclosing(expression, "if_statement")
        .ok_or_else(|| source.shape(expression, "a test of membership outside of `if` is not understood"))?;
    if !negated {
        let what = "the row is used only if it is there; otherwise the code goes on with its default, without a word";
        return Ok(Behaviour { effect: Effect::SilentFallback, at: source.at(expression), what: what.to_owned() });
    }
    if !condition::leaves(statement) {
        return Err(source.shape(statement, "what follows a missing row is not understood"));
    }
    let (effect, what) = off(condition::warns(source, statement));
    Ok(Behaviour { effect, at: source.at(statement), what: format!("`{}` {what}", test_text(source, statement)) })
}

fn off(warned: bool) -> (Effect, &'static str) {
    if warned {
        (Effect::OffWithWarning, "logs a warning and returns: the feature is off")
    } else {
        (Effect::OffSilently, "returns without a word: the feature is off")
    }
}

fn test_text(source: &Source, statement: Node<'_>) -> String {
    statement.child_by_field_name("condition").map(|test| excerpt(source.text(test))).unwrap_or_default()
}
