//! Files that others may read at any moment.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use engine::files::open_regular;

/// Old files that are kept beside a new one.
const MOST_KEPT: u32 = 10_000;

/// Where `file` can be written to: links are followed. Asked before work whose result it is to take. Errors: something
/// that is not a regular file, or one that is read-only, stands there.
pub fn writable(file: &Path) -> Result<PathBuf> {
    let context = || format!("cannot write {}", file.display());
    ensure!(file.file_name().is_some(), "cannot write {}: it names no file", file.display());
    if fs::symlink_metadata(file).is_err() {
        return Ok(file.to_owned());
    }
    let target = fs::canonicalize(file).with_context(|| format!("{}: it is a link to nothing", context()))?;
    let about = fs::metadata(&target).with_context(context)?;
    ensure!(about.is_file(), "{}: it exists and is not a regular file; name another file", context());
    ensure!(!about.permissions().readonly(), "{}: it exists and is read-only; name another file", context());
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

/// As [`write_whole`]. Other content that the file has is kept beside it first, under the next free number: `site.yaml` as
/// `site.1.yaml`. Gives the name of what was kept.
pub fn write_keeping(file: &Path, text: &str) -> Result<Option<PathBuf>> {
    let target = writable(file)?;
    let kept = match open_regular(&target) {
        Ok(old) => keep(&target, old, text).with_context(|| format!("cannot keep the old {}", file.display()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read the old {}", file.display())),
    };
    write_whole(file, text)?;
    Ok(kept)
}

/// Copies what `old` holds, unless it is nothing or `text`.
fn keep(target: &Path, mut old: File, text: &str) -> Result<Option<PathBuf>> {
    let mut bytes = Vec::new();
    old.read_to_end(&mut bytes)?;
    if bytes.is_empty() || bytes == text.as_bytes() {
        return Ok(None);
    }
    let stem = target.file_stem().unwrap_or_default().to_string_lossy();
    let ending = target.extension().map_or_else(String::new, |end| format!(".{}", end.to_string_lossy()));
    for number in 1..MOST_KEPT {
        let beside = target.with_file_name(format!("{stem}.{number}{ending}"));
        match File::create_new(&beside) {
            Ok(mut kept) => return Ok(kept.write_all(&bytes).map(|()| Some(beside))?),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot write {}", beside.display())),
        }
    }
    bail!("{MOST_KEPT} old ones are kept already; remove some")
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
    fn what_is_replaced_is_kept_under_the_next_number() {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| folder.path().join(name);
        let file = below("site.yaml");
        let write = |text: &str| write_keeping(&file, text).unwrap();
        assert_eq!((write("one"), write("one"), write("two")), (None, None, Some(below("site.1.yaml"))));
        assert_eq!(write("three"), Some(below("site.2.yaml")));
        let texts = ["site.yaml", "site.1.yaml", "site.2.yaml"].map(|name| fs::read_to_string(below(name)).unwrap());
        assert_eq!(texts, ["three", "one", "two"]);
        fs::write(below("plain"), "old").unwrap();
        assert_eq!(write_keeping(&below("plain"), "new").unwrap(), Some(below("plain.1")));
    }

    #[test]
    fn what_is_no_regular_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        let refused = |path: &Path| format!("{:#}", write_whole(path, "text").unwrap_err());
        assert!(refused(folder.path()).contains("not a regular file"));
        assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
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
