//! What must hold before a file is written: it may be written, and nobody uses it.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use super::running::{self, Look};
use super::write::WriteError;
use crate::patch::release::Release;

/// A file and its folder may be written: by their permission bits, which bind the administrator here too, and by the system.
pub fn writable(file: &Path) -> Result<(), WriteError> {
    let refused = |why: String| WriteError::NotWritable { path: file.display().to_string(), why };
    let folder = file.parent().ok_or_else(|| refused("it has no folder".to_owned()))?;
    for path in [file, folder] {
        let metadata = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
        if metadata.permissions().readonly() {
            return Err(refused(format!("{} is marked read-only", path.display())));
        }
    }
    OpenOptions::new().write(true).open(file).map_err(|error| refused(error.to_string()))?;
    // The new text comes into being beside the old one. This file has no name, so that a kill leaves nothing.
    let probe = tempfile::tempfile_in(folder);
    probe.map(drop).map_err(|error| refused(format!("nothing can be made in {}: {error}", folder.display())))
}

/// Nobody has a file open or runs the project from here.
pub fn unused(release: &Release, files: &[PathBuf]) -> Result<Look, WriteError> {
    let look = running::look(Path::new("/proc"), &release.root, release.project, files);
    match look.users.first() {
        None => Ok(look),
        Some(first) => Err(WriteError::InUse {
            project: release.project.to_string(),
            first: format!("process {} ({}) {}", first.pid, first.command, first.why),
            more: look.users.len() - 1,
        }),
    }
}
