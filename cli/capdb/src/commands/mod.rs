//! One file for each command: its arguments, its help and its work.

mod add_arch;
mod completions;
mod diff;
mod drift;
mod explain;
mod export;
mod import;
mod list;
mod migrate;
mod patch;
mod schema;
mod show;
mod test;
mod validate;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::source::Source;

#[derive(Subcommand)]
pub enum Command {
    Validate(validate::Args),
    AddArch(add_arch::Args),
    Show(show::Args),
    Explain(explain::Args),
    Test(test::Args),
    List(list::Args),
    Diff(diff::Args),
    Patch(patch::Args),
    Import(import::Args),
    Drift(drift::Args),
    Schema(schema::Args),
    Migrate(migrate::Args),
    Export(export::Args),
    Completions(completions::Args),
}

impl Command {
    pub fn run(&self, source: &Source) -> Result<ExitCode> {
        match self {
            Self::Validate(args) => validate::run(args, source),
            Self::AddArch(args) => add_arch::run(args, source),
            Self::Show(args) => show::run(args, source),
            Self::Explain(args) => explain::run(args, source),
            Self::Test(args) => test::run(args, source),
            Self::List(args) => list::run(args, source),
            Self::Diff(args) => diff::run(args, source),
            Self::Patch(args) => patch::run(args, source),
            Self::Import(args) => import::run(args, source),
            Self::Drift(args) => drift::run(args, source),
            Self::Schema(args) => schema::run(args),
            Self::Migrate(args) => migrate::run(args),
            Self::Export(args) => export::run(args, source),
            Self::Completions(args) => completions::run(args),
        }
    }
}

/// Exit code for findings.
pub fn found(any: bool) -> ExitCode {
    if any { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
