//! A JSON array for programs: every place as a byte range and as lines and columns.

use std::ops::Range;

use capdb::problem::Problem;
use serde_json::{Map, Value, json};

use super::{Place, Sources, severity_word};

pub(super) fn render(problems: &[Problem], sources: &Sources) -> String {
    let objects: Vec<Value> = problems.iter().map(|problem| object(problem, sources)).collect();
    format!("{:#}\n", Value::Array(objects))
}

fn object(problem: &Problem, sources: &Sources) -> Value {
    let related = problem.related.iter().map(|related| {
        let path = related.path.as_deref().unwrap_or(&problem.path);
        let mut object = located(path, &related.span, sources);
        object.insert("label".into(), related.label.clone().into());
        Value::Object(object)
    });
    let fix = problem.fix.as_ref().map(|fix| {
        let mut object = located(&problem.path, &fix.span, sources);
        object.insert("replacement".into(), fix.replacement.clone().into());
        object
    });
    let mut object = Map::new();
    object.insert("code".into(), problem.code.into());
    object.insert("severity".into(), severity_word(problem.severity).into());
    object.insert("message".into(), problem.message.clone().into());
    object.extend(located(&problem.path, &problem.span, sources));
    object.insert("label".into(), problem.label.clone().into());
    object.insert("hint".into(), problem.hint.clone().into());
    object.insert("fix".into(), fix.map_or(Value::Null, Value::Object));
    object.insert("related".into(), related.collect());
    Value::Object(object)
}

/// `path`, byte range and places of a span.
fn located(path: &str, span: &Range<usize>, sources: &Sources) -> Map<String, Value> {
    let (start, end) = sources.places(path, span);
    let place = |place: Place| json!({"line": place.line, "column": place.column});
    let Value::Object(object) = json!({
        "path": path,
        "bytes": {"start": span.start, "end": span.end},
        "start": place(start),
        "end": place(end),
    }) else {
        unreachable!("an object literal")
    };
    object
}
