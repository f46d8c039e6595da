//! `archway`: the engine and its server. One file per command in `commands`.
//!
//! stdout is data, stderr is talk. Exit codes: 0 done, 1 findings, 2 cannot.

mod cache;
mod cli;
mod commands;
mod date;
mod demo_model;
mod files;
mod generate;
mod gpus;
mod loader;
mod numbers;
mod plot;
mod progress;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (cli, notes) = match cli::parse(std::env::args().collect()) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    for note in notes {
        eprintln!("note: {note}");
    }
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
