use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use capdb_tool::diagnostics::{Format, Sources, render};
use capdb_tool::migrate::{Lifted, lift};
use capdb_tool::validate::files_of;

use crate::output;

/// Lift files of an older major schema version to the one that this program writes. Comments stay.
///
/// Nothing is written unless every file can be lifted.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb migrate old/arch/sm90.yaml --dry-run   print the lifted text
  capdb migrate old                            every file below a folder, in place

Exit codes: 0 done, 2 a file cannot be lifted.")]
pub struct Args {
    /// A file or a folder.
    path: PathBuf,
    /// Print the lifted files, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if !args.path.exists() {
        bail!("{}: there is no such file or folder", args.path.display());
    }
    let files = files_of(&args.path)?;
    let (mut lifted, mut problems, mut sources) = (Vec::new(), Vec::new(), Sources::default());
    for file in &files {
        match lift(file) {
            Ok(Lifted::Current) => {}
            Ok(Lifted::Changed(text)) => lifted.push((file, text)),
            Err(found) => {
                sources.insert(&file.path, String::from_utf8_lossy(&file.bytes));
                problems.extend(found);
            }
        }
    }
    if !problems.is_empty() {
        output::talk(format_args!("{}nothing was written", render(&problems, &sources, Format::Full, false)));
        return Ok(ExitCode::from(2));
    }
    for (file, text) in &lifted {
        if args.dry_run {
            output::text_of_files(&format!("--- {}\n{text}", file.path))?;
        } else {
            std::fs::write(&file.path, text).with_context(|| file.path.clone())?;
            output::data(&format!("{}\n", file.path))?;
        }
    }
    output::talk(format_args!("{} of {} files lifted", lifted.len(), files.len()));
    Ok(ExitCode::SUCCESS)
}
