use std::process::ExitCode;

use anyhow::{Result, anyhow};
use capdb_tool::patch::{self, WriteError};

use super::InstallationArgs;
use crate::output::{self, FormatArgs};

/// Restore what `capdb patch apply` edited, also after an interrupted apply.
///
/// Every file of the record is restored, or none: a file that somebody changed since is named and left as it is.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb patch revert --project vllm --path .venv/lib/python3.12/site-packages

Exit codes: 0 restored, 1 nothing was edited, or a file was changed since, 2 cannot: not writable, in use.")]
pub struct Args {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let release = args.installation.find()?;
    match patch::revert(&release) {
        Ok(restored) if args.format.is_json() => output::json(&restored.to_json())?,
        Ok(restored) => output::data(&restored.to_text())?,
        Err(error @ (WriteError::NothingEdited(_) | WriteError::ChangedSince { .. })) => {
            output::talk(format_args!("error: {:#}", anyhow!(error)));
            return Ok(ExitCode::from(1));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}
