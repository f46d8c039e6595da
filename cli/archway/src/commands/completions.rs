//! `archway completions`: what shells complete.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Args)]
pub struct Arguments {
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut command = crate::cli::Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "archway", &mut script);
    println!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}
