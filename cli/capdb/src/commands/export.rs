use std::process::ExitCode;

use anyhow::Result;
use capdb_tool::export;
use clap::ValueEnum;

use crate::output;
use crate::source::Source;

/// Print the database in another form.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb export --format json > capdb.json      every record merged, each value with its origin
  capdb export --format vllm                   Python tables, keyed by the exact capability
  capdb export --format sglang                 Python tables, keyed by major; a row holds what all its chips allow")]
pub struct Args {
    #[arg(long, value_enum, value_name = "FORMAT", required_unless_present = "json")]
    format: Option<FormatWord>,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatWord {
    Json,
    Sglang,
    Vllm,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let database = source.open()?;
    match args.format.unwrap_or(FormatWord::Json) {
        FormatWord::Json => output::json(&export::json(&database)?)?,
        FormatWord::Sglang => output::data(&export::sglang(&database)?)?,
        FormatWord::Vllm => output::data(&export::vllm(&database)?)?,
    }
    Ok(ExitCode::SUCCESS)
}
