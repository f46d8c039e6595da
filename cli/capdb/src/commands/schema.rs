use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use capdb_tool::schema::{self, FindingKind};

use super::found;
use crate::output;

/// Compare the committed JSON Schemas with the record types, or write them.
///
/// A published major version is frozen: a schema may grow, and it must still accept every file that it accepted. A change
/// that breaks this is refused, with the places that break.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("task").required(true).args(["check", "write"])), after_long_help = "\
Examples:
  capdb schema --check                         exit 1 if schemas/ is out of date
  capdb schema --write                         bring schemas/ up to date, never breaking a major
  capdb schema --check --against ../base/schemas
                                               also compare with the schemas of the branch to merge into")]
pub struct Args {
    /// Report every difference; change nothing.
    #[arg(long)]
    check: bool,
    /// Write what differs compatibly.
    #[arg(long)]
    write: bool,
    /// Folder of the committed schemas.
    #[arg(long, value_name = "DIR", default_value = "schemas")]
    schemas: PathBuf,
    /// Published schemas that must still be honoured.
    #[arg(long, value_name = "DIR", requires = "check", conflicts_with = "write")]
    against: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let context = || format!("schemas in {}", args.schemas.display());
    let findings = if args.write {
        schema::write(&args.schemas).with_context(context)?
    } else {
        schema::check(&args.schemas, args.against.as_deref()).with_context(context)?
    };
    for finding in &findings {
        output::data(&format!("{}: {}\n", finding.path.display(), finding.kind.message()))?;
    }
    let open = findings.iter().filter(|finding| finding.kind != FindingKind::Written).count();
    output::talk(format_args!("{} schemas, {open} findings", schema::SCHEMAS.len()));
    Ok(found(open > 0))
}
