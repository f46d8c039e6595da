//! One file against its schema.

use std::ops::Range;
use std::sync::OnceLock;

use capdb::load::{Loaded, SchemaVersion};
use capdb::problem::Problem;
use capdb::ranges;
use jsonschema::Validator;
use serde_json::Value;

use super::structure::{self, Subject};
use super::{meets, parallel, values};
use crate::schema::{SCHEMAS, Shape};

/// A schema and its compiled form, made once for a run.
struct Compiled {
    schema: Value,
    validator: Validator,
}

/// Compiled schemas by name, each made when the first file asks for it.
fn compiled(name: &str) -> Option<&'static Compiled> {
    static CELLS: [OnceLock<Option<Compiled>>; 16] = [const { OnceLock::new() }; 16];
    let index = SCHEMAS.iter().position(|kind| kind.name == name)?;
    let make = || {
        let schema = SCHEMAS[index].generate();
        let validator = jsonschema::draft202012::new(&schema).ok()?;
        Some(Compiled { schema, validator })
    };
    CELLS.get(index)?.get_or_init(make).as_ref()
}

/// Problems of every file beyond what reading found, in the order of the files.
pub(super) fn check_all(files: &[Loaded], read: &[Problem]) -> Vec<Vec<Problem>> {
    let mut places: std::collections::HashMap<&str, Vec<Range<usize>>> = std::collections::HashMap::new();
    for problem in read.iter().filter(|problem| problem.code != "wrong-form") {
        places.entry(problem.path.as_str()).or_default().push(problem.span.clone());
    }
    parallel(files.iter().collect(), |loaded| {
        let taken = places.get(loaded.file.path.as_str()).map(Vec::as_slice).unwrap_or_default();
        check(loaded, taken)
    })
}

fn check(loaded: &Loaded, taken: &[Range<usize>]) -> Vec<Problem> {
    let Some(root) = loaded.root() else { return Vec::new() };
    let path = loaded.file.path.as_str();
    let word = root.get("schema").and_then(|node| node.text()).unwrap_or_default();
    let Some(kind) = loaded.kind else { return stray(loaded) };
    let version = SchemaVersion::of(kind, word);
    if !matches!(version, SchemaVersion::Known | SchemaVersion::NewerMinor) {
        return Vec::new();
    }
    let (Some(compiled), Ok(text)) = (compiled(kind.schema()), std::str::from_utf8(&loaded.file.bytes)) else {
        return Vec::new();
    };
    let shape = Shape::root(&compiled.schema);
    let lenient = version == SchemaVersion::NewerMinor;
    let subject = Subject { path, text, root, shape, lenient };
    let mut kept = Kept { taken: taken.to_vec(), problems: Vec::new() };
    kept.add(ranges::check(path, root));
    kept.add(values::check(path, text, root, shape));
    kept.add(structure::check(&subject, &compiled.validator));
    kept.problems
}

/// Findings at places that nobody objected to yet, so that one fault is one finding.
struct Kept {
    taken: Vec<Range<usize>>,
    problems: Vec<Problem>,
}

impl Kept {
    fn add(&mut self, found: Vec<Problem>) {
        let fresh: Vec<Problem> =
            found.into_iter().filter(|problem| !self.taken.iter().any(|place| meets(place, &problem.span))).collect();
        self.taken.extend(fresh.iter().map(|problem| problem.span.clone()).filter(|span| !span.is_empty()));
        self.problems.extend(fresh);
    }
}

/// A YAML file in no known place of a database.
fn stray(loaded: &Loaded) -> Vec<Problem> {
    let message = format!("`{}` is in no known place of a database, so nothing reads it", loaded.file.relative);
    let hint = if loaded.file.relative.ends_with(".yml") {
        "name it `.yaml`"
    } else {
        "records lie in arch/, gpu/, patch/ and cases/; beside them are MANIFEST, vocab, sources, order and stack"
    };
    vec![Problem::error("stray-file", &loaded.file.path, 0..0, message).hint(hint)]
}
