use std::process::ExitCode;

use anyhow::Result;
use capdb_tool::listing;

use crate::output::{self, FormatArgs};
use crate::source::Source;

/// List architectures and products.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb list
  capdb list --json | jq '.gpus[] | select(.arch == \"sm120\").id'")]
pub struct Args {
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let listing = listing::Listing::of(&source.open()?);
    if args.format.is_json() {
        output::json(&listing.to_json())?;
    } else {
        output::data(&listing.to_text())?;
    }
    Ok(ExitCode::SUCCESS)
}
