//! Workflow commands of GitHub Actions; each becomes an annotation on the line that it names.

use capdb::problem::Problem;

use super::{Sources, severity_word};

pub(super) fn line(problem: &Problem, sources: &Sources) -> String {
    let (start, end) = sources.places(&problem.path, &problem.span);
    let mut body = problem.message.clone();
    for part in [&problem.label, problem.hint.as_ref().unwrap_or(&String::new())] {
        if !part.is_empty() {
            body.push('\n');
            body.push_str(part);
        }
    }
    // GitHub draws columns only for annotations of one line.
    let columns = if start.line == end.line {
        format!(",col={},endColumn={}", start.column, end.column.max(start.column + 1))
    } else {
        String::new()
    };
    format!(
        "::{} file={},line={},endLine={}{columns},title={}::{}",
        severity_word(problem.severity),
        property(&problem.path),
        start.line,
        end.line,
        property(problem.code),
        data(&body),
    )
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
