//! The bytes of a file, read or mapped.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::WeightError;
use crate::files::open_regular;

/// The whole content of one file.
pub type FileBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// How files are opened: [`read_file`], or the CPU backend's memory map, which may use `unsafe`.
pub type OpenFile = fn(&Path) -> io::Result<FileBytes>;

/// Reads a whole regular file into memory.
pub fn read_file(path: &Path) -> io::Result<FileBytes> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(Arc::new(bytes))
}

/// Opens a file of weights, with an error that names it.
pub(super) fn open(path: &Path, open: OpenFile) -> Result<FileBytes, WeightError> {
    open(path).map_err(|error| WeightError::File {
        path: path.display().to_string(),
        message: format!("cannot be opened: {error}"),
    })
}
