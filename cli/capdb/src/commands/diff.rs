use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use capdb::database::Database;
use capdb_tool::compare::compare;

use super::found;
use crate::output::{self, FormatArgs};
use crate::source::{OverlayArgs, Source};

/// Compare two databases: which values of the merged records change, and which decisions.
///
/// With --overlay alone the database is compared with itself under that overlay. Both are asked at every limit that either of them has, one byte above it, for every topology, with `auto`, strict, and
/// each algorithm by name.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  git worktree add ../base main
  capdb diff ../base/capdb/data capdb/data     what a change does to everything that reads the data
  capdb diff --overlay site.yaml               what the measurements of one machine change there
  capdb diff OLD NEW --json | jq '.decisions[] | select(.record == \"sm120\")'

Exit codes: 0 equal, 1 different, 2 a folder cannot be read as a database.")]
pub struct Args {
    /// Folder of the older database.
    #[arg(requires = "new", required_unless_present = "overlay")]
    old: Option<PathBuf>,
    /// Folder of the newer database.
    new: Option<PathBuf>,
    #[command(flatten)]
    overlay: OverlayArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let open = |path: &Path| Database::open(path).with_context(|| path.display().to_string());
    let (old, new) = match (&args.old, &args.new) {
        (Some(old), Some(new)) => (open(old)?, open(new)?),
        (None, None) => (source.open()?, source.open()?),
        _ => bail!("two folders are compared, or with --overlay none is named"),
    };
    let difference = compare(&old, &args.overlay.lay(new)?)?;
    if args.format.is_json() {
        output::json(&serde_json::to_value(&difference)?)?;
    } else {
        output::data(&difference.to_text())?;
    }
    Ok(found(!difference.is_empty()))
}
