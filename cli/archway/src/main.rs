//! `archway`: the engine and its server. One file per command in `commands`.
//!
//! stdout is data, stderr is talk. Exit codes: 0 done, 1 findings, 2 cannot.

#[macro_use]
mod output;

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
mod program;
mod progress;
mod rendering;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().map(std::ffi::OsString::into_string).collect::<Result<Vec<_>, _>>();
    let (cli, notes) = match arguments.map(cli::parse) {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(code)) => return code,
        Err(argument) => {
            eprintln!("error: the argument {} is not UTF-8; give names in UTF-8", argument.display());
            return ExitCode::from(2);
        }
    };
    for note in notes {
        eprintln!("note: {note}");
    }
    let code = commands::run(cli).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    });
    output::finish();
    code
}
