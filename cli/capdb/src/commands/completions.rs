use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, output};

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb completions bash > ~/.local/share/bash-completion/completions/capdb
  capdb completions zsh > ~/.zfunc/_capdb")]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "capdb", &mut script);
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
