//! Compiled units on disk, by recipe and compiler.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{CompileError, Compiled};

/// Files that this process has begun.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// A folder of compiled units. Several processes may share it: files appear whole or not at all.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, recipe: &str, compiler: &str) -> PathBuf {
        let compiler: String =
            compiler.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        self.folder.join(format!("{recipe}-{compiler}.cubin"))
    }

    /// None where there is nothing, or nothing whole: a damaged file counts as absent, and the next
    /// [`Cache::put`] replaces it.
    pub fn get(&self, recipe: &str, compiler: &str) -> Option<Compiled> {
        let compiled = Compiled::from_bytes(&std::fs::read(self.path(recipe, compiler)).ok()?)?;
        (compiled.compiler == compiler).then_some(compiled)
    }

    /// Errors: the folder cannot be written, or the disk is full; nothing is left behind then.
    pub fn put(&self, recipe: &str, compiled: &Compiled) -> Result<(), CompileError> {
        let path = self.path(recipe, &compiled.compiler);
        let error = |error| CompileError::File { path: path.clone(), error };
        std::fs::create_dir_all(&self.folder).map_err(error)?;
        // Ranks are threads of one process, and may put the same unit.
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{number}.part", std::process::id()));
        let write = || {
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(&compiled.to_bytes())?;
            std::fs::rename(&temporary, &path)
        };
        write().map_err(|cause| {
            // What is cut off would keep the disk full.
            let _gone = std::fs::remove_file(&temporary);
            error(cause)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("kernels"));
        let compiled = Compiled { cubin: vec![7; 100], compiler: "NVRTC 13.0".into(), resources: Vec::new() };
        cache.put("recipe", &compiled).unwrap();
        assert_eq!(cache.get("recipe", "NVRTC 13.0"), Some(compiled.clone()));
        // A folder with something in it stands where the file belongs.
        std::fs::create_dir_all(cache.path("other", "NVRTC 13.0").join("full")).unwrap();
        let error = cache.put("other", &compiled).unwrap_err().to_string();
        assert!(error.contains("other-NVRTC-13-0.cubin"), "{error}");
        assert_eq!(std::fs::read_dir(cache.folder()).unwrap().count(), 2, "the file, and the folder");
        assert_eq!(cache.get("other", "NVRTC 13.0"), None);
    }
}
