//! One line per problem: `path:line:column: error[code]: message`.

use capdb::problem::Problem;

use super::{Sources, severity_word};

pub(super) fn line(problem: &Problem, sources: &Sources) -> String {
    let (start, _) = sources.places(&problem.path, &problem.span);
    let severity = severity_word(problem.severity);
    let message = problem.message.replace(['\n', '\r'], " ");
    format!("{}:{}:{}: {severity}[{}]: {message}", problem.path, start.line, start.column, problem.code)
}
