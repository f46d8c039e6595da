//! Writing: data to stdout, talk to stderr, nothing that controls a terminal, and no panic when the reader has gone.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use capdb::printable::printable;
use capdb::problem::Problem;
use capdb_tool::diagnostics::{self, Format, Sources};
use clap::ValueEnum;

/// Text for people or JSON for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextOrJson {
    #[default]
    Text,
    Json,
}

/// `--format text|json`, and `--json` for short.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct FormatArgs {
    /// How to print.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: TextOrJson,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl FormatArgs {
    pub fn is_json(self) -> bool {
        self.json || self.format == TextOrJson::Json
    }
}

/// Writes data.
pub fn data(text: &str) -> Result<()> {
    exact(&printable(text))
}

/// Writes the text of a file as it is, e.g. a diff that is to be applied; a terminal gets it printable.
pub fn text_of_files(text: &str) -> Result<()> {
    if io::stdout().is_terminal() { data(text) } else { exact(text) }
}

/// Writes findings; in colours where a terminal takes them and nothing in the findings needs to be made printable.
pub fn problems(problems: &[Problem], sources: &Sources, format: Format) -> Result<()> {
    let plain = diagnostics::render(problems, sources, format, false);
    if !colour() || printable(&plain) != plain {
        return data(&plain);
    }
    exact(&diagnostics::render(problems, sources, format, true))
}

fn exact(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Writes a JSON document.
pub fn json(value: &serde_json::Value) -> Result<()> {
    data(&format!("{value:#}\n"))
}

/// Says something to people. A closed stderr is no reason to stop.
pub fn talk(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable(&text.to_string()));
}

/// Whether stdout wants colours.
fn colour() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !forbidden && io::stdout().is_terminal()
}

pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
