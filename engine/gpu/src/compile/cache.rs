//! Compiled units on disk, by recipe and compiler.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{CompileError, Compiled};

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

    /// Errors: the folder cannot be written.
    pub fn put(&self, recipe: &str, compiled: &Compiled) -> Result<(), CompileError> {
        let path = self.path(recipe, &compiled.compiler);
        let error = |error| CompileError::File { path: path.clone(), error };
        std::fs::create_dir_all(&self.folder).map_err(error)?;
        let temporary = path.with_extension(format!("{}.part", std::process::id()));
        let write = || {
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(&compiled.to_bytes())?;
            std::fs::rename(&temporary, &path)
        };
        write().map_err(error)
    }
}
