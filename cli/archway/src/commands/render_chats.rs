//! `archway render-chats`: what a child does for `archway serve`, because a chat template may hang or die.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::rendering;

/// Render the conversations of stdin, a line each, with the template of its first line.
#[derive(Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<ExitCode> {
    rendering::serve(io::stdin().lock(), io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}
