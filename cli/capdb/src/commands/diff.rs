use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use capdb::database::Database;
use capdb_tool::compare::compare;

use super::found;
use crate::output::{self, FormatArgs};

/// Compare two databases: which values of the merged records change, and which decisions.
///
/// Both are asked at every limit that either of them has, one byte above it, for every topology, with `auto`, strict, and
/// each algorithm by name.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  git worktree add ../base main
  capdb diff ../base/capdb/data capdb/data     what a change does to everything that reads the data
  capdb diff OLD NEW --json | jq '.decisions[] | select(.record == \"sm120\")'

Exit codes: 0 equal, 1 different, 2 a folder cannot be read as a database.")]
pub struct Args {
    /// Folder of the older database.
    old: PathBuf,
    /// Folder of the newer database.
    new: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let open = |path: &Path| Database::open(path).with_context(|| path.display().to_string());
    let difference = compare(&open(&args.old)?, &open(&args.new)?)?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&difference)?)?;
    } else {
        output::data(&difference.to_text())?;
    }
    Ok(found(!difference.is_empty()))
}
