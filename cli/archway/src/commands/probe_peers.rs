//! `archway probe-peers`: what a child does for `archway doctor` and for the plan, because it may hang or die.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use engine_gpu::probe::exercise;

/// Send bytes from every GPU to every other, and sum over all of them.
///
/// Exit code 0: all of it arrived. Anything else, a signal or a hang: it did not.
#[derive(Args)]
pub struct Arguments {
    /// GPUs, as CUDA counts.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', required = true)]
    devices: Vec<usize>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    exercise(&arguments.devices)?;
    println!("{{\"arrived\": true}}");
    Ok(ExitCode::SUCCESS)
}
