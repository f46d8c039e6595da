use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use capdb_tool::case_run::{self, Selection};
use capdb_tool::diagnostics::{self, Format};

use super::found;
use crate::output::{self, FormatArgs};
use crate::source::Source;

/// Run decision cases: unit tests that are data.
///
/// All case files of the database, or those of --cases alone. One line for each failure, and at the end `N passed, N failed`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb test                                   every case of the database
  capdb test --cases my-cases                  the cases of a folder or file against the database
  capdb test --json | jq '.failures[].id'

Exit codes: 0 all passed, 1 one failed, 2 a file of cases cannot be read.")]
pub struct Args {
    /// Folder or file with cases, instead of the database's own.
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let database = source.open()?;
    let selection = match &args.cases {
        Some(path) => Selection::path(path)?,
        None => Selection::database(source.files()?),
    };
    let result = case_run::run(&database, selection);
    if !result.problems.is_empty() {
        let problems = diagnostics::render(&result.problems, &result.sources, Format::Full, false);
        output::talk(format_args!("{problems}some files of cases cannot be read"));
    }
    if args.format.is_json() {
        output::json(&result.to_json())?;
    } else {
        output::data(&result.to_text())?;
    }
    if !result.problems.is_empty() {
        return Ok(ExitCode::from(2));
    }
    if let Some(path) = args.cases.as_ref().filter(|_| result.outcomes.is_empty()) {
        output::talk(format_args!("error: there are no cases in {}", path.display()));
        return Ok(ExitCode::from(2));
    }
    Ok(found(result.failed() > 0))
}
