use std::process::ExitCode;

use anyhow::Result;
use capdb_tool::show;
use clap::ValueEnum;

use crate::output;
use crate::source::{OverlayArgs, Source};

/// Show one record with everything merged: each value with its evidence, file and line.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb show sm120                             an architecture
  capdb show rtx-pro-6000                      a product: its own rows over its architecture's
  capdb show 12.0                              by compute capability; aliases work too
  capdb show sm120 --json | jq '.origins[\"/allreduce/one_shot/max_message/4\"]'")]
pub struct Args {
    /// Id of an architecture or a product, an alias, or a compute capability.
    id: String,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// How to print.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: FormatWord,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FormatWord {
    /// YAML with the origin of each value as a comment.
    #[default]
    Yaml,
    /// The merged record, and the origins by JSON pointer.
    Json,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let resolved = source.record(&args.overlay.lay(source.open()?)?, &args.id)?;
    if args.json || args.format == FormatWord::Json {
        output::json(&show::to_json(&resolved))?;
    } else {
        output::data(&show::to_yaml(&resolved))?;
    }
    Ok(ExitCode::SUCCESS)
}
