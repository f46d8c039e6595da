//! `archway kernels`: compiled kernels for hosts that have a driver and no compiler.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use engine::plan::{architectures, kernel_target, open_database};
use engine_gpu::compile::{CompileTarget, Nvrtc, Pack, units};

use crate::files::writable;

/// Compile kernels ahead of time.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Build(Build),
}

/// Compile every kernel into one file, which `archway serve --kernels PACK` loads.
///
/// Needs NVRTC, and no GPU.
#[derive(Args)]
struct Build {
    /// Architectures or products of the database, e.g. sm90 h200. Default: every architecture.
    #[arg(long, num_args = 1.., value_name = "ID")]
    arch: Vec<String>,
    /// Head dimensions of the models to be served.
    #[arg(long, num_args = 1.., value_name = "SIZE", default_values_t = [64, 128])]
    head_dim: Vec<u32>,
    /// File to write.
    #[arg(long, value_name = "PACK")]
    out: PathBuf,
    /// Folder of the capability database. Default: the copy inside the program.
    #[arg(long, value_name = "FOLDER")]
    capdb: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Build(arguments) => build(arguments),
    }
}

fn build(arguments: &Build) -> Result<ExitCode> {
    ensure!(arguments.head_dim.iter().all(|size| (1..=512).contains(size)), "--head-dim must be from 1 to 512");
    writable(&arguments.out).context("--out")?;
    let database = open_database(arguments.capdb.as_deref().map(Path::new))?;
    let ids = if arguments.arch.is_empty() { architectures(&database) } else { arguments.arch.clone() };
    let compiler = Nvrtc::open()?;
    let mut pack = Pack::default();
    for id in ids {
        let target = kernel_target(&database, &id)?;
        let name = target.targets.first().with_context(|| format!("record {id} names no compiler target"))?.clone();
        let target = CompileTarget { target: name.clone(), features: target.features, probed: target.probed };
        for unit in units(&arguments.head_dim) {
            let compiled = compiler.compile(&unit, &target).with_context(|| format!("{} for {name}", unit.name()))?;
            pack.insert(target.recipe(&unit), unit.name(), &name, compiled);
        }
        eprintln!("{id}: compiled for {name}");
    }
    pack.write(&arguments.out)?;
    println!("{}", arguments.out.display());
    Ok(ExitCode::SUCCESS)
}
