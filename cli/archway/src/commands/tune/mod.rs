//! `archway tune`: which all-reduce is fastest on this machine at which size, measured, as a site overlay.

mod measure;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use engine::files::read_bounded_text;
use engine::plan::open_database;
use engine::plan::tuning::{Measurement, tune};

use crate::files::{writable, write_keeping};
use crate::loader::tuning::usual_file;
use measure::measure;

/// Measure sums over the GPUs of this machine, and keep what was found for the next start.
///
/// Every algorithm is compared with a reference, then timed at every size, for each number of ranks and each element
/// type, with and without residual and norm. The result is a site overlay of the capability database: `archway serve`
/// uses it from the next start on, `capdb validate` checks it and `capdb diff --overlay` shows what it changes. The same
/// measurement gives the same file, and the same file the same choices.
#[derive(Args)]
pub struct Arguments {
    /// Numbers of ranks. Default: 2, 4, 8 and 16, as far as there are GPUs.
    #[arg(long, value_name = "RANKS", value_delimiter = ',')]
    world_sizes: Vec<usize>,
    /// File to write. Default: where `archway serve` looks for it on this machine.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Keep all figures in this file, as JSON.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    figures: Option<PathBuf>,
    /// Conclude from figures that were kept, without measuring.
    #[arg(long, value_name = "FILE", conflicts_with = "world_sizes")]
    from: Option<PathBuf>,
    /// Do not compare with references first.
    #[arg(long, conflicts_with = "from")]
    no_check: bool,
    /// Folder of the capability database. Default: the copy inside the program.
    #[arg(long, value_name = "FOLDER")]
    capdb: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let begin = Instant::now();
    check_files(arguments)?;
    let measurement = match &arguments.from {
        Some(file) => read(file)?,
        None => measure(arguments)?,
    };
    if let Some(file) = &arguments.figures {
        write(file, &(serde_json::to_string_pretty(&measurement)? + "\n"))?;
    }
    let database = open_database(arguments.capdb.as_deref().map(Path::new))?;
    let tuned = tune(database, &measurement)?;
    tuned.lines.iter().for_each(|line| eprintln!("{line}"));
    let out = arguments.out.clone().map_or_else(|| usual_file(&measurement.record), Ok)?;
    write(&out, &tuned.text)?;
    println!("{}", out.display());
    eprintln!(
        "tuned in {:.0} s; `capdb diff --overlay {}` shows what changes",
        begin.elapsed().as_secs_f64(),
        out.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(kept) = write_keeping(file, text)? {
        eprintln!("note: {} was there; it is kept as {}", file.display(), kept.display());
    }
    Ok(())
}

/// Errors: something that is not a tuning stands where one is to be written.
fn replaces_a_tuning(target: &Path) -> Result<()> {
    let Ok(file) = fs::File::open(target) else { return Ok(()) };
    let mut text = Vec::new();
    file.take(1 << 16).read_to_end(&mut text)?;
    let is_tuning = String::from_utf8_lossy(&text).lines().any(|line| line.starts_with("schema: overlay/"));
    ensure!(text.is_empty() || is_tuning, "it exists and is not a tuning; name another file");
    Ok(())
}

/// Before the work: what it gives can be written, and nothing that was given is written over.
fn check_files(arguments: &Arguments) -> Result<()> {
    let mut files: Vec<(&str, PathBuf)> = Vec::new();
    if let Some(from) = &arguments.from {
        files.push(("--from", fs::canonicalize(from).unwrap_or_else(|_| from.clone())));
    }
    for (flag, file) in [("--out", &arguments.out), ("--figures", &arguments.figures)] {
        let Some(file) = file else { continue };
        let target = writable(file).context(flag)?;
        if let Some((other, _)) = files.iter().find(|(_, known)| *known == target) {
            anyhow::bail!("{flag} {}: {other} names the same file; name another", file.display());
        }
        if flag == "--out" {
            replaces_a_tuning(&target).with_context(|| format!("--out {}", file.display()))?;
        }
        files.push((flag, target));
    }
    Ok(())
}

fn read(file: &Path) -> Result<Measurement> {
    let text = read_bounded_text(file).with_context(|| format!("--from {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("--from {} holds no figures of `archway tune`", file.display()))
}
