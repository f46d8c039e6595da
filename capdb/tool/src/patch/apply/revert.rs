//! Restoring: every file of the record back to its original, or none.

use std::path::PathBuf;

use super::guard;
use super::outcome::Restored;
use super::receipt::{Entry, Store};
use super::write::{WriteError, lock, remove_bytecode, replace};
use crate::patch::edit::checksum;
use crate::patch::python::{self, SourceError};
use crate::patch::release::Release;

/// One file of the record.
struct Found {
    path: String,
    file: PathBuf,
    /// `None` where the file is as it was.
    original: Option<Vec<u8>>,
}

/// Restores what `apply` edited. A file that has neither its original text nor one that was written is somebody else's work,
/// and then nothing is restored.
pub fn revert(release: &Release) -> Result<Restored, WriteError> {
    let store = Store::new(release);
    if store.load()?.is_none() {
        return Err(WriteError::NothingEdited(release.root.display().to_string()));
    }
    let lock = lock(release)?;
    let Some(receipt) = store.load()? else {
        return Err(WriteError::NothingEdited(release.root.display().to_string()));
    };
    let found: Vec<Found> =
        receipt.files.iter().map(|entry| look(release, &store, entry)).collect::<Result<_, WriteError>>()?;
    let changed: Vec<&Found> = found.iter().filter(|it| it.original.is_some()).collect();
    changed.iter().try_for_each(|it| guard::writable(&it.file))?;
    let files: Vec<PathBuf> = changed.iter().map(|it| it.file.clone()).collect();
    let processes = guard::unused(release, &files)?;
    let mut bytecode = Vec::new();
    for it in &found {
        if let Some(original) = &it.original {
            replace(&it.file, original).map_err(|source| WriteError::io(&it.file, source))?;
        }
        bytecode.extend(remove_bytecode(&it.file)?);
    }
    store.remove()?;
    drop(lock);
    let names = |restored: bool| {
        found.iter().filter(|it| it.original.is_some() == restored).map(|it| it.path.clone()).collect()
    };
    Ok(Restored { restored: names(true), untouched: names(false), processes, bytecode })
}

fn look(release: &Release, store: &Store, entry: &Entry) -> Result<Found, WriteError> {
    let changed = || WriteError::ChangedSince {
        path: entry.path.clone(),
        original: store.original(&entry.original).display().to_string(),
        folder: store.folder.display().to_string(),
    };
    let (file, bytes) = match python::read(&release.root, &entry.path) {
        Err(SourceError::Missing(_)) => return Err(changed()),
        other => other?,
    };
    let sum = checksum(&bytes);
    let original = if sum == entry.original {
        None
    } else if entry.written.contains(&sum) {
        Some(store.read_original(&entry.original)?)
    } else {
        return Err(changed());
    };
    Ok(Found { path: entry.path.clone(), file, original })
}
