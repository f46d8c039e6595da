//! The command line.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    bench, completions, config, demo, doctor, kernels, plan, probe_peers, render_chats, serve, tune,
};
use crate::settings::spellings::{self, Meaning};

/// LLM inference engine whose knowledge of GPU architectures is data.
#[derive(Parser)]
#[command(name = "archway", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Serve(Box<serve::Arguments>),
    Demo(Box<demo::Arguments>),
    Doctor(doctor::Arguments),
    Kernels(kernels::Arguments),
    Plan(Box<plan::Arguments>),
    Bench(bench::Arguments),
    Tune(tune::Arguments),
    #[command(hide = true)]
    ProbePeers(probe_peers::Arguments),
    #[command(hide = true)]
    RenderChats(render_chats::Arguments),
    Config(config::Arguments),
    Completions(completions::Arguments),
}

/// Parses a command line in our, SGLang's or vLLM's spelling. Returns notes on what was translated; on failure the
/// message has been printed and the exit code is returned.
pub fn parse(arguments: Vec<String>) -> Result<(Cli, Vec<String>), ExitCode> {
    let (arguments, notes) = spellings::translate(arguments);
    let parsed = with_negative_numbers(Cli::command()).try_get_matches_from(arguments);
    match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok((cli, notes)),
        Err(error) => {
            if let Some(why) = foreign(&error) {
                eprintln!("error: {why}");
                return Err(ExitCode::from(2));
            }
            // Help and version are not a failure and go to stdout.
            let _printed = error.print();
            Err(if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS })
        }
    }
}

/// `--port -1` is a wrong number, not an unknown flag.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let takes = argument.get_action().takes_values() && !argument.is_positional();
        argument.allow_negative_numbers(takes)
    });
    command.mut_subcommands(with_negative_numbers)
}

/// What there is to say about a flag of another server that asks for something we do not have.
fn foreign(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.trim_start_matches("--").split('=').next()?;
    match spellings::meaning(name) {
        Some(Meaning::Foreign(why)) => Some(format!("--{name} is not supported: {why}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        with_negative_numbers(Cli::command()).debug_assert();
    }

    #[test]
    fn every_command_line_that_is_shown_is_taken() {
        for shown in archway_tests::documented::command_lines(&Cli::command()) {
            let (place, words) = (shown.place, format!("{:?}", shown.words));
            assert!(parse(shown.words).is_ok(), "{place}: {words}");
        }
    }

    #[test]
    fn both_spellings_mean_the_same() {
        let vllm = "archway serve m -tp 2 --max-model-len 4k --max-num-seqs 8 --no-enable-prefix-caching";
        let sglang = "archway serve --model-path m --tp 2 --context-length 4000 --max-running-requests 8 \
                      --disable-radix-cache";
        let options = |text: &str| match parse(line(text)) {
            Ok((Cli { command: Command::Serve(arguments) }, _)) => arguments.options().unwrap(),
            _ => panic!("{text}"),
        };
        assert_eq!(options(vllm), options(&sglang.replace("                      ", "")));
    }
}
