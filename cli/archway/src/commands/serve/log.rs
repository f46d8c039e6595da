//! The server's log.

use std::env;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::output::{self, Talk};
use crate::settings::LogLevel;

/// Events go to stderr. `RUST_LOG` is the usual way to ask for parts of them. What cannot be written, because the disk is
/// full or the reader stalls or has gone, is lost, and the server goes on. Returns the number of lines that were lost,
/// which grows. Errors: a `RUST_LOG` that is not a filter, or no thread for the log.
pub fn start(level: LogLevel) -> Result<Arc<AtomicU64>> {
    let filter = match env::var_os(EnvFilter::DEFAULT_ENV).filter(|wish| !wish.is_empty()) {
        Some(wish) => parse(&wish.to_string_lossy())?,
        None => {
            let word = serde_json::to_value(level)?;
            EnvFilter::new(word.as_str().unwrap_or("info"))
        }
    };
    let lost = output::queue_talk()
        .context("the thread that writes the log cannot start; allow more processes (`ulimit -u`)")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Talk)
        .with_ansi(stderr().is_terminal())
        // The library tells of an event that it cannot write on stderr too, by a macro that waits for its reader and panics where that fails.
        .log_internal_errors(false)
        .init();
    Ok(lost)
}

fn parse(wish: &str) -> Result<EnvFilter> {
    EnvFilter::try_new(wish).with_context(|| {
        format!(
            "{} is `{wish}`, which is not a filter; give a level (`debug`), parts of the program with levels \
             (`info,engine_server=debug`), or unset it",
            EnvFilter::DEFAULT_ENV
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_filter_is_named() {
        assert!(parse("info,engine_server=debug").is_ok() && parse("off").is_ok());
        let said = format!("{:#}", parse("a=b=c").unwrap_err());
        assert!(said.starts_with("RUST_LOG is `a=b=c`, which is not a filter"), "{said}");
    }
}
