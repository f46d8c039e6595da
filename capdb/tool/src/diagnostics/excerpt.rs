//! The part of a file that is shown with a problem: whole lines where they are short, a window of a line where not.
//! So the cost of a problem does not grow with the file.

use std::ops::Range;

use super::sources::Source;

/// A line longer than this many bytes is shown as a window around the span.
const LONG_LINE: usize = 400;
/// Bytes kept before and after the start of the span in such a window.
const WINDOW: usize = 80;
/// A span over more lines than this shows its first line only.
const MANY_LINES: usize = 8;

/// A piece of a source with a span inside it.
pub(super) struct Excerpt<'a> {
    pub text: &'a str,
    /// Number of its first line, from 1.
    pub first_line: usize,
    /// The span, relative to `text`.
    pub span: Range<usize>,
    /// Whether the beginning of its line is missing, so that columns cannot be counted in it.
    pub cut: bool,
}

/// The excerpt for a byte range of `source`.
pub(super) fn excerpt<'a>(source: &'a Source, span: &Range<usize>) -> Excerpt<'a> {
    let start = source.boundary(span.start);
    let end = source.boundary(span.end.max(span.start)).max(start);
    let first = source.line_of(start);
    let last = if end > start { source.line_of(end - 1) } else { first };
    let last = if last - first >= MANY_LINES { first } else { last };
    let lines = source.line_range(first).start..source.line_range(last).end;
    let long = (first..=last).any(|line| source.line_range(line).len() > LONG_LINE);
    let window = if long { around(source, start, &source.line_range(first)) } else { lines };
    let inside = |offset: usize| offset.clamp(window.start, window.end) - window.start;
    let span = inside(start)..inside(end);
    Excerpt {
        text: &source.text()[window.clone()],
        first_line: first + 1,
        span,
        cut: window.start > source.line_range(first).start,
    }
}

/// A window of a long line.
fn around(source: &Source, start: usize, line: &Range<usize>) -> Range<usize> {
    let from = source.boundary(start.saturating_sub(WINDOW).max(line.start));
    let to = source.boundary((start + WINDOW).min(line.end).max(from));
    from..to
}

/// Whether two places are near enough to stand in one excerpt with both lines whole.
pub(super) fn joined<'a>(source: &'a Source, spans: &[Range<usize>]) -> Option<Excerpt<'a>> {
    const NEAR: usize = 8 * 1024;
    let start = source.boundary(spans.iter().map(|span| span.start).min()?);
    let end = source.boundary(spans.iter().map(|span| span.end).max()?).max(start);
    let first = source.line_of(start);
    let last = source.line_of(end);
    let whole = source.line_range(first).start..source.line_range(last.min(source.lines() - 1)).end;
    let short = whole.len() <= NEAR && (first..=last).all(|line| source.line_range(line).len() <= LONG_LINE);
    short.then(|| Excerpt {
        text: &source.text()[whole.clone()],
        first_line: first + 1,
        span: start - whole.start..end.min(whole.end) - whole.start,
        cut: false,
    })
}
