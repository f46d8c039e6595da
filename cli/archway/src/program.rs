//! This program, to be started again.

use std::io;
use std::path::{Path, PathBuf};

/// What Linux runs this process from, also after an upgrade has put another file in its place or taken it away.
const RUNNING: &str = "/proc/self/exe";

/// The file of this program. Errors: the system does not say.
pub fn own() -> io::Result<PathBuf> {
    let running = Path::new(RUNNING);
    // Not `exists`: the link of a file that is gone leads nowhere by its text, and still starts it.
    if running.is_symlink() { Ok(running.to_owned()) } else { std::env::current_exe() }
}
