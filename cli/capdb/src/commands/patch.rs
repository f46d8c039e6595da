use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use capdb::record::PatchProject;
use capdb_tool::patch::{self, Card, Release};
use clap::Subcommand;

use crate::output::{self, FormatArgs};
use crate::source::Source;

/// Find what an installed SGLang or vLLM does not know about a GPU.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb patch list
  capdb patch check --project sglang --path .venv/lib/python3.12/site-packages --gpu rtx-pro-6000
  capdb patch check --project vllm --path /opt/vllm/site-packages/vllm --gpu h200 --json

The source is parsed, never run. Exit codes of check: 0 nothing to do, 1 gaps, 2 cannot tell.")]
pub struct Args {
    #[command(subcommand)]
    command: PatchCommand,
}

#[derive(Subcommand)]
enum PatchCommand {
    /// List the places in other projects' sources that are known.
    List(ListArgs),
    /// Compare an installed copy with the database, for one GPU.
    Check(CheckArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    /// Only this project: sglang or vllm.
    #[arg(long, value_name = "PROJECT")]
    project: Option<PatchProject>,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(clap::Args)]
struct CheckArgs {
    /// sglang or vllm.
    #[arg(long, value_name = "PROJECT")]
    project: PatchProject,
    /// The folder site-packages, or the package's own folder.
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
    /// A product or an architecture; `capdb list` shows them.
    #[arg(long, value_name = "ID")]
    gpu: String,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    match &args.command {
        PatchCommand::List(args) => list(args, source),
        PatchCommand::Check(args) => check(args, source),
    }
}

fn list(args: &ListArgs, source: &Source) -> Result<ExitCode> {
    let records = patch::records(source.files()?, args.project)?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&records)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let line = |record: &capdb::record::PatchRecord| {
        let versions = record.versions.to_string();
        format!("{:<34} {:<7} {versions:<18} {}\n", record.id, record.project, record.feature)
    };
    output::data(&records.iter().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &CheckArgs, source: &Source) -> Result<ExitCode> {
    let database = source.open()?;
    // An unknown id gets the nearest known one.
    source.record(&database, &args.gpu)?;
    let card = Card::new(&database, &args.gpu)?;
    let records = patch::records(source.files()?, Some(args.project))?;
    let release = Release::find(args.project, &args.path).context("cannot tell")?;
    let report = patch::check(&release, &card, &records).map_err(|error| anyhow!("the database is broken: {error}"))?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&report)?)?;
    } else {
        output::data(&report.to_text())?;
    }
    Ok(ExitCode::from(report.exit_code()))
}
