//! `archway config`: the settings file and its schema.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};

use crate::settings::{Options, resolve, schema};

/// The settings file: its schema, and what is in force.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the JSON Schema of the file that `serve --config` reads.
    Schema,
    /// Print every setting with its value and who set it: flag, file and line, or default.
    Show(Box<Show>),
}

#[derive(Args)]
struct Show {
    /// Settings file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Schema => println!("{}", schema::text()?.trim_end()),
        Command::Show(show) => print_settings(show)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_settings(show: &Show) -> Result<()> {
    let report = resolve(&show.options, show.config.as_deref())?.report();
    if show.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["KEY", "VALUE", "SET BY"]);
    for (key, entry) in report.as_object().into_iter().flatten() {
        let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.add_row([key.clone(), text(&entry["value"]), text(&entry["origin"])]);
    }
    println!("{table}");
    Ok(())
}
