use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use capdb_tool::diagnostics::Format;
use capdb_tool::lint::LINTS;
use capdb_tool::validate::{self, Input, InputError};
use clap::ValueEnum;

use super::found;
use crate::output;
use crate::source::Source;

/// Check the data: reading, schema, types, lints. Everything is reported at once.
///
/// Without a PATH the whole database is checked. A PATH is a folder with a database, or single files; those are checked in
/// the light of the database that they lie in, else of the one that --db names.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb validate                               the whole database
  capdb validate capdb/data/arch/sm120.yaml    one file, in the light of the others
  capdb validate --format github               annotations for a pull request
  capdb validate --format json | jq '.[].code' for programs

Exit codes: 0 no errors (warnings may stand), 1 errors, 2 a path cannot be read.")]
pub struct Args {
    /// Files, or a folder.
    paths: Vec<PathBuf>,
    /// How to print the findings.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: FormatWord,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print the name and the meaning of every lint, and stop.
    #[arg(long)]
    list_lints: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FormatWord {
    /// With excerpt, hint and repair.
    #[default]
    Full,
    /// One line each.
    Concise,
    /// A JSON array.
    Json,
    /// Workflow commands for annotations.
    Github,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    if args.list_lints {
        let lines: String =
            LINTS.iter().map(|lint| format!("{} ({}): {}\n", lint.name, lint.scope(), lint.about)).collect();
        output::data(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = validate::validate(input(args, source)?);
    let format = match args.format {
        _ if args.json => Format::Json,
        FormatWord::Full => Format::Full,
        FormatWord::Concise => Format::Concise,
        FormatWord::Json => Format::Json,
        FormatWord::Github => Format::Github,
    };
    output::problems(&report.problems, &report.sources, format)?;
    output::talk(format_args!("{}", report.summary.line()));
    Ok(found(report.summary.errors > 0))
}

fn input(args: &Args, source: &Source) -> Result<Input> {
    if args.paths.is_empty() {
        return Ok(Input::database(source.files()?));
    }
    if let Some(missing) = args.paths.iter().find(|path| !path.exists()) {
        bail!("{}: there is no such file or folder", missing.display());
    }
    let mut broken = None;
    let context = || {
        source.files().map_err(|error| {
            broken = Some(error);
            InputError::Context
        })
    };
    let input = Input::paths(&args.paths, context);
    match broken {
        Some(error) => Err(error),
        None => Ok(input?),
    }
}
