//! `archway bench`: latency and throughput of the engine in this process and of a server over HTTP, and sums over GPUs.

mod allreduce;
mod allreduce_charts;
mod bounds;
mod eagle3;
mod frontend;
mod latency;
mod peers;
mod report;
mod serve;
mod stream;
mod throughput;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::loader::{self, Prepared};
use crate::settings::{LoadFormat, Options, resolve_alone};

/// Measure the engine, or a server.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Latency(Box<latency::Arguments>),
    Throughput(Box<throughput::Arguments>),
    Serve(Box<serve::Arguments>),
    Allreduce(Box<allreduce::Arguments>),
    Eagle3(Box<eagle3::Arguments>),
    Frontend(frontend::Arguments),
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Latency(arguments) => latency::run(arguments),
        Command::Throughput(arguments) => throughput::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Allreduce(arguments) => allreduce::run(arguments),
        Command::Eagle3(arguments) => eagle3::run(arguments),
        Command::Frontend(arguments) => frontend::run(arguments),
    }
}

/// A model for measurements with random prompts. Their seed is `--seed`, so where weights are read it is not an idle flag.
fn prepare(flags: &Options) -> Result<Prepared> {
    let mut options = resolve_alone(flags)?;
    if options.load_format != Some(LoadFormat::Dummy) {
        options.seed = None;
    }
    loader::prepare(&options)
}
