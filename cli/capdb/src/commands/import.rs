use std::process::ExitCode;

use anyhow::Result;
use capdb_tool::patch;

use super::patch::InstallationArgs;
use crate::output::{self, FormatArgs};
use crate::source::Source;

/// Print the tables of an installed SGLang or vLLM as readings for the database, each beside the reading that it has.
///
/// The text is YAML for `sources.yaml` and the records of the architectures. A release that no record covers is read all the
/// same where its source has a known shape, and said so.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb import --project vllm --path .venv/lib/python3.12/site-packages
  capdb import --project sglang --path wheel --json | jq '.readings[] | select(.stands != \"new\")'

Exit codes: 0 the database says the same, 1 something differs or is new, 2 a place cannot be read.")]
pub struct Args {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let database = source.open()?;
    let records = args.installation.records(source)?;
    let release = args.installation.find()?;
    let import = patch::import(&release, &database, &records)?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&import)?)?;
    } else {
        output::data(&import.to_text())?;
    }
    Ok(ExitCode::from(import.exit_code()))
}
