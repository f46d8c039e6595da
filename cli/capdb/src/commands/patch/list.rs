use std::process::ExitCode;

use anyhow::Result;
use capdb::record::{PatchProject, PatchRecord};
use capdb_tool::patch;

use crate::output::{self, FormatArgs};
use crate::source::Source;

/// List the places in other projects' sources that are known, with the releases that each is known in.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb patch list
  capdb patch list --project vllm --json")]
pub struct Args {
    /// Only this project: sglang or vllm.
    #[arg(long, value_name = "PROJECT")]
    project: Option<PatchProject>,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let records = patch::records(source.files()?, args.project)?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&records)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = |record: &PatchRecord| {
        let versions = record.versions.to_string();
        format!("{:<34} {:<7} {versions:<18} {}\n", record.id, record.project, record.feature)
    };
    output::data(&records.iter().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
