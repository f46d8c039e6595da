//! Weight files mapped into memory: pages come from disk when first touched and are shared between processes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use engine::files::open_regular;
use engine::weights::FileBytes;
use memmap2::Mmap;

/// Maps a regular file read-only. Fits [`engine::weights::OpenFile`].
pub fn map_file(path: &Path) -> io::Result<FileBytes> {
    let file = open_regular(path)?;
    if file.metadata()?.len() == 0 {
        // An empty range cannot be mapped.
        return Ok(Arc::new([]));
    }
    // SAFETY: the mapping is private and read-only, and lives as long as the `Arc`. Its bytes stay constant as long as
    // nobody writes to or truncates the file meanwhile; checkpoints are replaced by renaming, and every reader of
    // weights accepts any byte values, so a changed file can give wrong numbers or end the process, not undefined types.
    let map = unsafe { Mmap::map(&file) }?;
    Ok(Arc::new(map))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::map_file;

    #[test]
    fn a_mapped_file_has_the_bytes_of_the_file() {
        let mut file = tempfile::NamedTempFile::new().expect("can make a file");
        assert!((*map_file(file.path()).expect("can be mapped")).as_ref().is_empty());
        let content: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&content).expect("can write");
        assert!((*map_file(file.path()).expect("can be mapped")).as_ref() == content);
    }

    #[test]
    fn folders_and_missing_files_are_errors() {
        let folder = tempfile::tempdir().expect("can make a folder");
        assert!(map_file(folder.path()).is_err());
        assert!(map_file(&folder.path().join("gone")).is_err());
    }
}
