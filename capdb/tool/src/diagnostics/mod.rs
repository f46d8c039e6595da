//! Rendering of problems: for people (full, concise), for programs (json) and for pull requests (github).

mod concise;
mod excerpt;
mod full;
mod github;
mod json;
mod sources;

use std::fmt::Write as _;

use capdb::problem::{Problem, Severity};

pub use sources::{Place, Source, Sources};

/// How problems are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// In rustc's manner: excerpt, label, hint, and the repair as a patch.
    #[default]
    Full,
    /// One line per problem.
    Concise,
    /// A JSON array with one object per problem.
    Json,
    /// Workflow commands that become annotations on a pull request.
    Github,
}

/// Counts of a run, for the last line and the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that were looked at.
    pub files: usize,
    pub errors: usize,
    pub warnings: usize,
}

impl Summary {
    /// Counts `problems` found in `files` files.
    pub fn of(problems: &[Problem], files: usize) -> Self {
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        Self { files, errors, warnings: problems.len() - errors }
    }

    /// The last line: `2 errors and 1 warning in 31 files`.
    pub fn line(&self) -> String {
        let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
        let files = count(self.files, "file");
        match (self.errors, self.warnings) {
            (0, 0) => format!("{files} checked, no findings"),
            (0, warnings) => format!("{} in {files}", count(warnings, "warning")),
            (errors, 0) => format!("{} in {files}", count(errors, "error")),
            (errors, warnings) => format!("{} and {} in {files}", count(errors, "error"), count(warnings, "warning")),
        }
    }
}

/// Brings problems into the order in which they are printed: by path, place and code.
pub fn sort(problems: &mut [Problem]) {
    problems.sort_by(|left, right| {
        let key = |problem: &Problem| (problem.span.start, problem.span.end, problem.code);
        (left.path.as_str(), key(left)).cmp(&(right.path.as_str(), key(right)))
    });
}

/// Prints `problems`, already sorted. `colour` is heeded by `Format::Full` only.
pub fn render(problems: &[Problem], sources: &Sources, format: Format, colour: bool) -> String {
    match format {
        Format::Full => full::render(problems, sources, colour),
        Format::Concise => each_line(problems, sources, concise::line),
        Format::Json => json::render(problems, sources),
        Format::Github => each_line(problems, sources, github::line),
    }
}

fn each_line(problems: &[Problem], sources: &Sources, line: fn(&Problem, &Sources) -> String) -> String {
    problems.iter().fold(String::new(), |mut text, problem| {
        let _ = writeln!(text, "{}", line(problem, sources));
        text
    })
}

/// The word for a severity, the same in every format.
pub(crate) const fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

#[cfg(test)]
mod tests;
