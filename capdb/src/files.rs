//! Files that somebody named, opened in one place. Only regular ones are read: a pipe waits until somebody writes, forever
//! if nobody does, and a device may have no end. A shell's `<(command)` is a pipe too, and refused like any other.

use std::fs::{self, File, FileType};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a regular file, or a link to one, for reading. Errors: those of the system; anything else, by its name.
pub fn open_regular(path: &Path) -> io::Result<File> {
    require_regular(path)?;
    File::open(path)
}

/// Errors: something else than a regular file, or a link to one, by its name; those of the system.
pub fn require_regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let advice = if kind.is_dir() { "name a file" } else { "write what it gives to a file, and name that" };
    let message = format!("it is {}, and only regular files are accepted here; {advice}", word(kind));
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// The first bytes of a regular file, at most `most`. Errors: as [`open_regular`].
pub fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether something has this name, whatever it is: also a link to nothing, and what may not be looked at. So a file that
/// may be left out and is there in a wrong form is read, and refused, not passed over.
pub fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).map_or_else(|error| error.kind() == ErrorKind::PermissionDenied, |_| true)
}

fn word(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        for (path, name) in [
            (folder.path(), "a folder, and only regular files are accepted here; name a file"),
            (&socket, "a socket"),
            (Path::new(&pipe), "a pipe"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let said = open_regular(path).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }

    #[test]
    fn files_and_links_to_them_are_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_there(&link) && !is_there(&file));
        assert_eq!(open_regular(&link).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&file, "abc").unwrap();
        assert_eq!((read_up_to(&link, 2).unwrap(), read_up_to(&file, 9).unwrap()), (b"ab".to_vec(), b"abc".to_vec()));
        assert!(!is_there(Path::new(&"long".repeat(5000))));
    }
}
