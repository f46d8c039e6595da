//! Files that others may read at any moment.

use std::fs::{self, Permissions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Where `file` can be written to: links are followed. Asked before work whose result it is to take. Errors: something
/// that is no regular file, or one that is read-only, stands there.
pub fn writable(file: &Path) -> Result<PathBuf> {
    let context = || format!("cannot write {}", file.display());
    ensure!(file.file_name().is_some(), "cannot write {}: it names no file", file.display());
    if fs::symlink_metadata(file).is_err() {
        return Ok(file.to_owned());
    }
    let target = fs::canonicalize(file).with_context(|| format!("{}: it is a link to nothing", context()))?;
    let about = fs::metadata(&target).with_context(context)?;
    ensure!(about.is_file(), "{}: it is there, and it is no regular file; name another", context());
    ensure!(!about.permissions().readonly(), "{}: it is there, and it is read-only; name another", context());
    Ok(target)
}

/// Writes `text` under another name first, so that nobody ever reads half a file. Makes the folder; keeps the
/// permissions of a file that is replaced. Errors: as [`writable`], and those of the file system.
pub fn write_whole(file: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", file.display());
    let target = writable(file)?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(context)?;
    let permissions = fs::metadata(&target).map_or_else(|_| usual(), |about| about.permissions());
    let mut part = tempfile::Builder::new().permissions(permissions).tempfile_in(folder).with_context(context)?;
    part.write_all(text.as_bytes()).with_context(context)?;
    part.persist(&target).with_context(context)?;
    Ok(())
}

/// Of a new file, before the process's mask.
fn usual() -> Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/site.yaml");
        write_whole(&file, "text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        assert!(write_whole(&file.join("below"), "text").is_err());
    }

    #[test]
    fn what_is_no_regular_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        let refused = |path: &Path| format!("{:#}", write_whole(path, "text").unwrap_err());
        assert!(refused(folder.path()).contains("no regular file"));
        assert!(refused(Path::new("/dev/null")).contains("no regular file"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(refused(&link).contains("link to nothing"));
        fs::write(&file, "old").unwrap();
        write_whole(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        assert!(refused(&file).contains("read-only"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
