//! Problems in rustc's manner.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Element, Group, Level, Origin, Patch, Renderer, Snippet};
use capdb::problem::{Fix, Problem, Severity};

use super::Sources;
use super::excerpt::{Excerpt, excerpt, joined};
use super::sources::Source;

pub(super) fn render(problems: &[Problem], sources: &Sources, colour: bool) -> String {
    let renderer = if colour { Renderer::styled().hyperlink(false) } else { Renderer::plain() };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    problems.iter().map(|problem| renderer.render(&report(problem, sources)) + "\n\n").collect()
}

/// The problem itself, and the repair as a second group where there is one.
fn report<'a>(problem: &'a Problem, sources: &'a Sources) -> Vec<Group<'a>> {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut main = level.primary_title(problem.message.as_str()).id(problem.code).elements(places(problem, sources));
    if let Some(hint) = &problem.hint {
        main = main.element(Level::HELP.message(hint.as_str()));
    }
    let repair = problem.fix.as_ref().zip(sources.get(&problem.path)).map(|(fix, source)| repair(problem, fix, source));
    std::iter::once(main).chain(repair).collect()
}

/// Excerpts of the problem's own place and of the related ones.
fn places<'a>(problem: &'a Problem, sources: &'a Sources) -> Vec<Element<'a>> {
    let Some(source) = sources.get(&problem.path).filter(|source| !whole_file(problem, source)) else {
        let mut elements = vec![Origin::path(problem.path.as_str()).into()];
        elements.extend(others(problem, sources, false));
        return elements;
    };
    let near: Vec<Range<usize>> = problem
        .related
        .iter()
        .filter(|related| related.path.as_deref().is_none_or(|path| path == problem.path))
        .map(|related| related.span.clone())
        .chain([problem.span.clone()])
        .collect();
    if let Some(joined) = joined(source, &near).filter(|_| near.len() > 1) {
        let mut elements = vec![together(problem, source, &joined).into()];
        elements.extend(others(problem, sources, true));
        return elements;
    }
    let mut elements = alone(&problem.path, source, &problem.span, AnnotationKind::Primary, &problem.label);
    elements.extend(others(problem, sources, false));
    elements
}

/// Whether the problem is about the file as such.
fn whole_file(problem: &Problem, source: &Source) -> bool {
    source.text().is_empty() || (problem.span == (0..0) && problem.label.is_empty())
}

/// One snippet with the problem's place and all related places of the same file.
fn together<'a>(problem: &'a Problem, source: &'a Source, excerpt: &Excerpt<'a>) -> Snippet<'a, Annotation<'a>> {
    let from = source.line_range(excerpt.first_line - 1).start;
    let inside = |span: &Range<usize>| {
        let end = excerpt.text.len();
        source.boundary(span.start).saturating_sub(from).min(end)
            ..source.boundary(span.end).saturating_sub(from).min(end)
    };
    let related = problem
        .related
        .iter()
        .filter(|related| related.path.as_deref().is_none_or(|path| path == problem.path))
        .map(|related| AnnotationKind::Context.span(inside(&related.span)).label(related.label.as_str()));
    Snippet::source(excerpt.text)
        .path(problem.path.as_str())
        .line_start(excerpt.first_line)
        .annotation(AnnotationKind::Primary.span(inside(&problem.span)).label(label(&problem.label)))
        .annotations(related)
}

/// Excerpts of related places; those of the problem's own file only if they are not shown yet.
fn others<'a>(problem: &'a Problem, sources: &'a Sources, own_shown: bool) -> Vec<Element<'a>> {
    let mut elements = Vec::new();
    for related in &problem.related {
        let path = related.path.as_deref().unwrap_or(&problem.path);
        match sources.get(path) {
            _ if own_shown && path == problem.path => {}
            Some(source) => {
                elements.extend(alone(path, source, &related.span, AnnotationKind::Context, &related.label));
            }
            None => elements.push(Level::NOTE.message(format!("{path}: {}", related.label)).into()),
        }
    }
    elements
}

/// A snippet with one place. Where the line is cut, the true line and column are named above it.
fn alone<'a>(
    path: &'a str,
    source: &'a Source,
    span: &Range<usize>,
    kind: AnnotationKind,
    text: &'a str,
) -> Vec<Element<'a>> {
    let excerpt = excerpt(source, span);
    let annotation = kind.span(excerpt.span.clone()).label(label(text));
    let snippet = Snippet::source(excerpt.text).line_start(excerpt.first_line).annotation(annotation);
    if excerpt.cut {
        let place = source.place(span.start);
        let origin = Origin::path(path).line(place.line).char_column(place.column);
        return vec![origin.into(), snippet.into()];
    }
    vec![snippet.path(path).into()]
}

fn label(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The repair as a patch of the same lines.
fn repair<'a>(problem: &'a Problem, fix: &'a Fix, source: &'a Source) -> Group<'a> {
    let title = match fix.replacement.as_str() {
        "" => "remove it",
        _ if fix.span.is_empty() => "add it",
        _ => "replace it",
    };
    let excerpt = excerpt(source, &fix.span);
    let patch = Patch::new(excerpt.span.clone(), fix.replacement.as_str());
    Group::with_title(Level::HELP.secondary_title(title))
        .element(Snippet::source(excerpt.text).path(problem.path.as_str()).line_start(excerpt.first_line).patch(patch))
}
