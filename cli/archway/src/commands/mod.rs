//! One file per command.

pub mod bench;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod kernels;
pub mod plan;
pub mod probe_peers;
pub mod render_chats;
pub mod serve;
pub mod tune;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Cli, Command};

pub fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::ProbePeers(arguments) => probe_peers::run(&arguments),
        Command::RenderChats(arguments) => render_chats::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}
