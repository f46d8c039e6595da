use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use capdb_tool::scaffold::{NewArch, new_arch};

use crate::output;
use crate::source::Source;

/// Write a record and decision cases for a new architecture, and say what it inherits and what to measure.
///
/// Nothing else has to be edited: validate, test, show, explain, list and the engine's plan know it from then on. Until
/// something is measured every value is inherited, and every decision that rests on one says so.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb add-arch sm130 --extends sm120 --compute-capability 13.0
  capdb add-arch sm130 --extends sm120 --compute-capability 13.0 --dry-run
  capdb explain --arch sm130 --world-size 4 --topology pcie_p2p --message 24KiB
                                               what is decided for it now")]
pub struct Args {
    /// Id of the new record, e.g. sm130.
    id: String,
    /// Record to inherit from.
    #[arg(long, value_name = "PARENT")]
    extends: String,
    /// Major and minor number, e.g. 13.0.
    #[arg(long, value_name = "X.Y")]
    compute_capability: String,
    /// Name for display [default: the id].
    #[arg(long)]
    name: Option<String>,
    /// Print what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    let Some(folder) = source.folder()? else {
        bail!("the copy inside the program cannot be written to; name a folder with --db DIR");
    };
    let new = NewArch {
        id: args.id.clone(),
        parent: args.extends.clone(),
        compute_capability: args.compute_capability.clone(),
        name: args.name.clone(),
    };
    let scaffold = new_arch(&source.files()?, &new)?;
    for file in scaffold.files.iter().filter(|_| !args.dry_run) {
        let path = folder.join(&file.relative);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        // A file that is there is somebody's work.
        let written = OpenOptions::new().write(true).create_new(true).open(&path);
        written.and_then(|mut target| target.write_all(&file.bytes)).with_context(|| path.display().to_string())?;
        output::talk(format_args!("wrote {}", path.display()));
    }
    if args.json {
        output::json(&scaffold.to_json())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    if args.dry_run {
        for file in &scaffold.files {
            let _ = write!(text, "--- {}\n{}\n", file.relative, String::from_utf8_lossy(&file.bytes));
        }
    }
    let _ = writeln!(text, "inherited, until someone measures it:");
    for (path, value, origin) in &scaffold.inherited {
        let _ = writeln!(text, "  {path} = {value} (from {}, {origin})", origin.layer);
    }
    let _ = writeln!(text, "\nto measure or to look up:");
    for line in &scaffold.to_measure {
        let _ = writeln!(text, "  {line}");
    }
    output::data(&text)?;
    Ok(ExitCode::SUCCESS)
}
