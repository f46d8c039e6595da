//! `capdb`: the capability database on the command line. stdout is data, stderr is talk; exit 0 clean, 1 findings or a
//! difference, 2 cannot.

mod commands;
mod output;
mod source;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use source::Source;

/// What each GPU architecture can do, as data with evidence: validate it, ask it, extend it.
#[derive(Parser)]
#[command(name = "capdb", version, after_long_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    source: Source,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  capdb list                                   architectures and products
  capdb show sm120                             one record with everything merged, each value with its origin
  capdb explain --gpu rtx-pro-6000 --world-size 4 --message 112KiB
                                               which all-reduce a message takes there, and why not another
  capdb validate                               every finding in the data, with its place and what to do
  capdb add-arch sm130 --extends sm120 --compute-capability 13.0
                                               a record and its cases to start from

Exit codes: 0 clean, 1 findings or a difference, 2 the command cannot be carried out.";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run(&cli.source) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::talk(format_args!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use archway_tests::documented::command_lines;
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_line_that_is_shown_is_taken() {
        for shown in command_lines(&Cli::command()) {
            let parsed = Cli::try_parse_from(&shown.words);
            assert!(parsed.is_ok(), "{}: {:?}: {}", shown.place, shown.words, parsed.err().unwrap());
        }
    }
}
