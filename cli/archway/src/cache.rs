//! Where the program keeps files of its own.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// What can be made again: `$XDG_CACHE_HOME/archway/NAME`, by default under `~/.cache`. Not made yet.
pub fn folder(name: &str) -> Result<PathBuf> {
    below("XDG_CACHE_HOME", ".cache", name)
}

/// What was found out and is worth keeping: `$XDG_DATA_HOME/archway/NAME`, by default under `~/.local/share`. Not made yet.
pub fn data_folder(name: &str) -> Result<PathBuf> {
    below("XDG_DATA_HOME", ".local/share", name)
}

fn below(variable: &str, usual: &str, name: &str) -> Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(usual)));
    let none = || format!("there is no home folder to keep files in; set HOME, or {variable} to a folder");
    Ok(folder.with_context(none)?.join("archway").join(name))
}
