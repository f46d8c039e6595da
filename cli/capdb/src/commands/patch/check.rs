use std::process::ExitCode;

use anyhow::{Result, anyhow};
use capdb_tool::patch;

use super::{InstallationArgs, MachineArgs};
use crate::output::{self, FormatArgs};
use crate::source::Source;

/// Compare an installed copy with the database, for one GPU: which tables lack it, what that does, and what would help.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb patch check --project sglang --path .venv/lib/python3.12/site-packages --gpu rtx-pro-6000
  capdb patch check --project vllm --path /opt/vllm/site-packages/vllm --gpu h200 --json
  capdb patch check --project sglang --path site-packages --gpu h100-sxm --multicast false
                                               a machine that is not the product's usual one

Exit codes: 0 nothing to do, 1 gaps, 2 cannot tell: an unknown release, or source of another shape.")]
pub struct Args {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let card = args.machine.card(source)?;
    let records = args.installation.records(source)?;
    let release = args.installation.find()?;
    let report = patch::check(&release, &card, &records).map_err(|error| anyhow!("the database is broken: {error}"))?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&report)?)?;
    } else {
        output::data(&report.to_text())?;
    }
    Ok(ExitCode::from(report.exit_code()))
}
