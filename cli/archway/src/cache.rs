//! Where the program keeps what it can make again.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// `$XDG_CACHE_HOME/archway/NAME`, by default under `~/.cache`. Not made yet.
pub fn folder(name: &str) -> Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(cache.context("there is no home folder to keep files in; set HOME")?.join("archway").join(name))
}
