//! Validation: strict reading, then the schema, then typed reading, then the lints; everything found, all at once.

mod file;
mod input;
mod structure;
pub mod suggest;
mod values;

use std::collections::HashSet;
use std::ops::Range;

use capdb::assembly::Assembly;
use capdb::load::{FileKind, Loaded};
use capdb::overlay;
use capdb::problem::{Problem, Severity};

pub use input::{Input, InputError, files_of, folder_files, read_file};

use crate::diagnostics::{self, Sources, Summary};
use crate::lint::{self, Tree};

/// What a validation found.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order in which they are printed.
    pub problems: Vec<Problem>,
    /// Texts of the files that the problems point into.
    pub sources: Sources,
    pub summary: Summary,
}

/// Validates files. Never panics, whatever they hold.
pub fn validate(input: Input) -> Report {
    let Input { files, focus, complete } = input;
    let loaded = parallel(files, |file| Input::kind_of(Loaded::read(file)));
    let (assembly, mut problems) = Assembly::new(loaded);
    let checked = file::check_all(assembly.files(), &problems);
    problems = merge(problems, &checked, &assembly, complete);
    let sound: Vec<bool> = sound(&assembly, &problems);
    problems.extend(lint::run(&Tree::new(&assembly, &sound, complete)));
    for loaded in assembly.files().iter().filter(|loaded| loaded.kind == Some(FileKind::Overlay)) {
        let start = overlay::read(&mut loaded.clone(), &assembly.index).err();
        say_as_a_start(&mut problems, start.unwrap_or_default());
    }
    report(problems, &assembly, focus.as_ref())
}

/// Whether two places have something in common.
fn meets(a: &Range<usize>, b: &Range<usize>) -> bool {
    a == b || (a.start < b.end && b.start < a.end)
}

/// Puts in what a start says of an overlay, in its words; what the validation found out about the same place stays as
/// advice. Of a wrong form the schema says more than a start, which refuses it all the same.
fn say_as_a_start(problems: &mut Vec<Problem>, start: Vec<Problem>) {
    for said in start {
        let mut errors: Vec<&mut Problem> =
            problems.iter_mut().filter(|found| found.path == said.path && found.severity == Severity::Error).collect();
        let form = said.code == "wrong-form" && !errors.is_empty();
        let place = errors.iter().position(|found| meets(&found.span, &said.span));
        let same = place.or_else(|| errors.iter().position(|found| found.code == said.code));
        match same {
            _ if form => {}
            Some(same) => (errors[same].code, errors[same].message) = (said.code, said.message),
            None => problems.push(said),
        }
    }
}

/// Applies `work` to every item on all processors, keeping the order.
pub(crate) fn parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    if threads == 1 || items.len() < 8 {
        return items.into_iter().map(work).collect();
    }
    let mut chunks: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    let size = items.len().div_ceil(threads);
    for (index, item) in items.into_iter().enumerate() {
        chunks[index / size].push(item);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let handles: Vec<_> = chunks
            .into_iter()
            .map(|chunk| scope.spawn(move || chunk.into_iter().map(work).collect::<Vec<R>>()))
            .collect();
        handles
            .into_iter()
            .flat_map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Puts the findings of reading and of the schema together. The typed read says less about the same fault than the
/// schema, so its word counts only where the schema is silent.
fn merge(read: Vec<Problem>, checked: &[Vec<Problem>], assembly: &Assembly, complete: bool) -> Vec<Problem> {
    let is_error = |problem: &&Problem| problem.severity == Severity::Error && problem.code != "wrong-form";
    let refused: HashSet<String> =
        read.iter().chain(checked.iter().flatten()).filter(is_error).map(|problem| problem.path.clone()).collect();
    let reread = |problem: &Problem| match problem.code {
        "wrong-form" => refused.contains(&problem.path),
        "newer-field" => true,
        "missing-file" => !complete,
        _ => false,
    };
    let mut problems: Vec<Problem> = read.into_iter().filter(|problem| !reread(problem)).collect();
    problems.extend(checked.iter().flatten().cloned());
    problems.iter_mut().for_each(|problem| name_parent(problem, assembly));
    problems
}

/// Adds the nearest known record to the hint of a dangling reference.
fn name_parent(problem: &mut Problem, assembly: &Assembly) {
    if !matches!(problem.code, "dangling-parent" | "dangling-arch") {
        return;
    }
    let loaded = assembly.files().iter().find(|loaded| loaded.file.path == problem.path);
    let text = loaded.and_then(|loaded| std::str::from_utf8(&loaded.file.bytes).ok());
    let word = text.and_then(|text| text.get(problem.span.clone())).unwrap_or_default().trim_matches(['"', '\'']);
    if let Some(near) = suggest::nearest(word, assembly.index.archs.keys().map(String::as_str)) {
        problem.hint = Some(format!("did you mean `{near}`?"));
    }
}

/// Files without errors: only these are worth a lint.
fn sound(assembly: &Assembly, problems: &[Problem]) -> Vec<bool> {
    let refused: HashSet<&str> = problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error && !is_about_others(problem.code))
        .map(|problem| problem.path.as_str())
        .collect();
    assembly
        .files()
        .iter()
        .map(|loaded| loaded.root().is_some() && !refused.contains(loaded.file.path.as_str()))
        .collect()
}

/// Findings that leave the file itself readable.
fn is_about_others(code: &str) -> bool {
    matches!(code, "dangling-parent" | "dangling-arch" | "extends-cycle" | "reader-too-old")
}

fn report(mut problems: Vec<Problem>, assembly: &Assembly, focus: Option<&HashSet<String>>) -> Report {
    if let Some(focus) = focus {
        problems.retain(|problem| focus.contains(&problem.path));
    }
    diagnostics::sort(&mut problems);
    problems.dedup();
    let named: HashSet<&str> = problems
        .iter()
        .flat_map(|problem| {
            let related = problem.related.iter().filter_map(|related| related.path.as_deref());
            std::iter::once(problem.path.as_str()).chain(related)
        })
        .collect();
    let mut sources = Sources::default();
    for loaded in assembly.files().iter().filter(|loaded| named.contains(loaded.file.path.as_str())) {
        // A file that is not text has no places; its problem is about the file as such.
        if let Ok(text) = std::str::from_utf8(&loaded.file.bytes) {
            sources.insert(&loaded.file.path, text);
        }
    }
    let files = focus.map_or(assembly.files().len(), HashSet::len);
    Report { summary: Summary::of(&problems, files), problems, sources }
}

#[cfg(test)]
mod tests;
