//! `capdb patch …`: one file for each of its commands.

mod apply;
mod check;
mod list;
mod revert;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use capdb::record::{PatchProject, PatchRecord, Topology};
use capdb_tool::patch::{self, Card, Release};
use clap::Subcommand;

use crate::source::Source;

/// Find what an installed SGLang or vLLM does not know about a GPU, and fix it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb patch list
  capdb patch check --project sglang --path .venv/lib/python3.12/site-packages --gpu rtx-pro-6000
  capdb patch apply --project vllm --path /opt/vllm/site-packages --gpu b300 --dry-run
  capdb patch revert --project vllm --path /opt/vllm/site-packages

The source is parsed, never run.")]
pub struct Args {
    #[command(subcommand)]
    command: PatchCommand,
}

#[derive(Subcommand)]
enum PatchCommand {
    List(list::Args),
    Check(check::Args),
    Apply(apply::Args),
    Revert(revert::Args),
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    match &args.command {
        PatchCommand::List(args) => list::run(args, source),
        PatchCommand::Check(args) => check::run(args, source),
        PatchCommand::Apply(args) => apply::run(args, source),
        PatchCommand::Revert(args) => revert::run(args),
    }
}

/// Which installation.
#[derive(clap::Args)]
pub struct InstallationArgs {
    /// sglang or vllm.
    #[arg(long, value_name = "PROJECT")]
    project: PatchProject,
    /// The folder site-packages, or the package's own folder.
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
}

impl InstallationArgs {
    pub fn find(&self) -> Result<Release> {
        Release::find(self.project, &self.path).context("cannot tell")
    }

    pub fn records(&self, source: &Source) -> Result<Vec<PatchRecord>> {
        Ok(patch::records(source.files()?, Some(self.project))?)
    }
}

/// Which GPU, in which machine.
#[derive(clap::Args)]
struct MachineArgs {
    /// A product or an architecture; `capdb list` shows them.
    #[arg(long, value_name = "ID")]
    gpu: String,
    /// How the GPUs are joined [default: as the product usually is].
    #[arg(long, value_name = "T")]
    topology: Option<Topology>,
    /// Whether the machine has multicast memory [default: as the product's usual machine].
    #[arg(long, value_name = "BOOL")]
    multicast: Option<bool>,
}

impl MachineArgs {
    fn card(&self, source: &Source) -> Result<Card> {
        let database = source.open()?;
        // An unknown id gets the nearest known one.
        source.record(&database, &self.gpu)?;
        Ok(Card::new(&database, &self.gpu)?.on(self.topology, self.multicast)?)
    }
}
