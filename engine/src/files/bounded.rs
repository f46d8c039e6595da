//! Reading files that somebody named: devices and pipes never end, and a wrong name may be that of a large file.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use crate::plan::read_up_to;

/// Most bytes of a text: configurations, templates, indices of shards, figures.
pub const LARGEST_TEXT: u64 = 64 << 20;

/// The bytes of a regular file of at most `most` bytes. Errors: those of the system; no regular file; one that is larger.
pub fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>> {
    let bytes = read_up_to(path, most + 1)?;
    if bytes.len() as u64 > most {
        let message = format!("it has more than {most} bytes, the most that is read of such a file");
        return Err(Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The same for a text. Errors: also what is not UTF-8.
pub fn read_bounded_text(path: &Path) -> Result<String> {
    let bytes = read_bounded(path, LARGEST_TEXT)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_an_error() {
        let error = read_bounded(Path::new("/dev/zero"), 1000).unwrap_err();
        assert!(error.to_string().contains("a device"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, [b'a'; 1000]).unwrap();
        assert_eq!(read_bounded(&file, 1000).unwrap().len(), 1000);
        assert!(read_bounded(&file, 999).unwrap_err().to_string().contains("more than 999 bytes"));
        assert_eq!(read_bounded_text(&file).unwrap().len(), 1000);
        std::fs::write(&file, [0xff]).unwrap();
        assert!(read_bounded_text(&file).unwrap_err().to_string().contains("utf-8"));
    }
}
