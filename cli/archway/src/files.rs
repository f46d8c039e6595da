//! Files that others may read at any moment.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes `text` under another name first, so that nobody ever reads half a file. Makes the folder.
pub fn write_whole(file: &Path, text: &str) -> Result<()> {
    let context = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(context)?;
    }
    let mut name = file.file_name().with_context(context)?.to_owned();
    name.push(".new");
    let part = file.with_file_name(name);
    fs::write(&part, text).and_then(|()| fs::rename(&part, file)).with_context(context)
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
}
