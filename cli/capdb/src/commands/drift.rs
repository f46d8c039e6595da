use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use capdb::record::PatchProject;
use capdb_tool::patch::{self, Release};

use crate::output::{self, FormatArgs};
use crate::source::Source;

/// Compare two releases of SGLang or vLLM: which rows changed, which GPUs a gate lets through, what a missing row does.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb drift old-wheel new-wheel --project vllm
  capdb drift /opt/old/site-packages /opt/new/site-packages --project sglang --json

Exit codes: 0 the same, 1 rows changed, 2 a place cannot be read.")]
pub struct Args {
    /// site-packages or an unpacked wheel with the older release.
    old: PathBuf,
    /// The same for the newer release.
    new: PathBuf,
    /// sglang or vllm.
    #[arg(long, value_name = "PROJECT")]
    project: PatchProject,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let find = |path: &Path| Release::find(args.project, path).context("cannot tell");
    let (old, new) = (find(&args.old)?, find(&args.new)?);
    let records = patch::records(source.files()?, Some(args.project))?;
    let drift = patch::drift(&old, &new, &records);
    if args.format.is_json() {
        output::json(&serde_json::to_value(&drift)?)?;
    } else {
        output::data(&drift.to_text())?;
    }
    Ok(ExitCode::from(drift.exit_code()))
}
