//! This program, to be started again.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What Linux runs this process from, also after an upgrade has put another file in its place or taken it away.
const RUNNING: &str = "/proc/self/exe";

/// A command that starts this program. Errors: the system does not say where it is.
pub fn again() -> io::Result<Command> {
    // Not `exists`: the link of a file that is gone leads nowhere by its text, and still starts it.
    let mut command = match Path::new(RUNNING).is_symlink() {
        true => Command::new(RUNNING),
        false => Command::new(std::env::current_exe()?),
    };
    // Its name in lists of processes.
    command.arg0(env!("CARGO_PKG_NAME"));
    Ok(command)
}
