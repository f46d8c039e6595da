//! Writing a plan: guards, originals, record, then one atomic replacement for each file. Whatever fails on the way, each file is
//! whole: the old one or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use capdb::files::{is_there, require_regular};

use super::guard;
use super::outcome::Outcome;
use super::plan::Plan;
use super::receipt::{FOLDER, Receipt, ReceiptError, Store};
use super::running::Look;
use crate::patch::edit::{FileEdit, checksum};
use crate::patch::python::{self, SourceError};
use crate::patch::release::Release;

/// How the names of texts on their way begin.
pub const TEMPORARY: &str = ".capdb-patch-";

/// Why nothing was written, or nothing more.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{path}: may not be written: {why}")]
    NotWritable { path: String, why: String },
    #[error("{first}{}; stop it first: a running server would mix old and new code", also(*.more))]
    InUse { project: String, first: String, more: usize },
    #[error("{0}: another `capdb patch` works here; try again when it is done")]
    Locked(String),
    #[error("{0}: was changed while the edit was prepared; nothing was written")]
    ChangedMeanwhile(String),
    #[error(
        "{path}: was changed since the edit, so it is left as it is; the original lies in {original}, and deleting {folder} forgets the edit"
    )]
    ChangedSince { path: String, original: String, folder: String },
    #[error("{0}: nothing was edited here, so there is nothing to restore")]
    NothingEdited(String),
    #[error("{path}: {cause}")]
    Io { path: String, cause: io::Error },
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl WriteError {
    pub(super) fn io(path: &Path, cause: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), cause }
    }
}

fn also(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

/// The guards alone, for a dry run.
pub fn would_be_refused(release: &Release, plan: &Plan) -> Result<Look, WriteError> {
    plan.files.iter().try_for_each(|edit| guard::writable(&edit.file))?;
    guard::unused(release, &paths(plan))
}

fn paths(plan: &Plan) -> Vec<PathBuf> {
    plan.files.iter().map(|edit| edit.file.clone()).collect()
}

/// Writes a plan.
pub fn carry_out(release: &Release, plan: &Plan) -> Result<Outcome, WriteError> {
    let processes = would_be_refused(release, plan)?;
    let lock = lock(release)?;
    let store = Store::new(release);
    let previous = store.load()?;
    if let Err(error) = prepare(release, plan, &store, previous.clone()) {
        if previous.is_none() {
            store.remove()?;
        }
        return Err(error);
    }
    for (index, edit) in plan.files.iter().enumerate() {
        let written = unchanged(release, edit).and_then(|()| {
            replace(&edit.file, edit.after.as_bytes()).map_err(|source| WriteError::io(&edit.file, source))
        });
        if let Err(error) = written {
            take_back(&plan.files[..index], &store, previous.as_ref())?;
            return Err(error);
        }
    }
    let mut bytecode = Vec::new();
    for edit in &plan.files {
        bytecode.extend(remove_bytecode(&edit.file)?);
    }
    drop(lock);
    Ok(Outcome { written: true, processes, bytecode, receipt: Some(store.path()), refused: None })
}

/// Keeps the originals and writes the record, in this order and before any edit.
fn prepare(release: &Release, plan: &Plan, store: &Store, previous: Option<Receipt>) -> Result<(), WriteError> {
    let mut receipt = previous.unwrap_or_else(|| Receipt::new(release));
    for edit in &plan.files {
        unchanged(release, edit)?;
        store.keep(edit.before.as_bytes())?;
        let (before, after) = (checksum(edit.before.as_bytes()), checksum(edit.after.as_bytes()));
        let edits: Vec<String> = edit.records.iter().map(|id| format!("{}: {id}", plan.gpu)).collect();
        receipt.note(&edit.path, &release.version, &before, &after, &edits);
    }
    Ok(store.save(&receipt)?)
}

/// The file still has the text that the edit was made for.
fn unchanged(release: &Release, edit: &FileEdit) -> Result<(), WriteError> {
    let (file, bytes) = python::read(&release.root, &edit.path)?;
    if file == edit.file && bytes == edit.before.as_bytes() {
        Ok(())
    } else {
        Err(WriteError::ChangedMeanwhile(edit.path.clone()))
    }
}

/// Undoes what was written of a plan that failed half-way.
fn take_back(done: &[FileEdit], store: &Store, previous: Option<&Receipt>) -> Result<(), WriteError> {
    for edit in done {
        replace(&edit.file, edit.before.as_bytes()).map_err(|source| WriteError::io(&edit.file, source))?;
        remove_bytecode(&edit.file)?;
    }
    match previous {
        Some(receipt) => store.save(receipt)?,
        None => store.remove()?,
    }
    Ok(())
}

/// One `capdb patch` at a time in one site-packages. Released when the file is dropped.
pub fn lock(release: &Release) -> Result<File, WriteError> {
    let folder = release.root.join(FOLDER);
    let path = folder.join("lock");
    let failed = |source| WriteError::io(&path, source);
    fs::create_dir_all(&folder).map_err(failed)?;
    if is_there(&path) {
        require_regular(&path).map_err(failed)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(WriteError::Locked(release.root.display().to_string())),
        Err(fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Puts a whole new file in the place of an old one, with its owner and permissions. A hard link elsewhere keeps the old text,
/// so a package manager's cache is not touched.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no folder"))?;
    let mut new = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
    new.write_all(bytes)?;
    match fs::metadata(path) {
        Ok(old) => {
            let own = new.as_file().metadata()?;
            if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                fchown(new.as_file(), Some(old.uid()), Some(old.gid()))?;
            }
            new.as_file().set_permissions(old.permissions())?;
        }
        // A file of our own is readable like the package beside it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            new.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        }
        Err(error) => return Err(error),
    }
    new.as_file().sync_all()?;
    new.persist(path).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// Makes names in a folder last.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes the compiled forms of a module, and texts that an interruption left behind. Python finds the first kind stale by itself
/// unless it was told not to look.
pub fn remove_bytecode(file: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let (Some(folder), Some(stem)) = (file.parent(), file.file_stem().and_then(|stem| stem.to_str())) else {
        return Ok(Vec::new());
    };
    let head = format!("{stem}.");
    let compiled = |name: &str| name.starts_with(&head) && name.ends_with(".pyc");
    let mut removed = remove_files(&folder.join("__pycache__"), compiled)?;
    removed.extend(remove_files(folder, |name| name.starts_with(TEMPORARY))?);
    Ok(removed)
}

/// Removes the plain files of a folder that a test picks. No folder, no files.
fn remove_files(folder: &Path, pick: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, WriteError> {
    let plain = fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir());
    let Some(entries) = plain.then(|| fs::read_dir(folder).ok()).flatten() else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(&pick)) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        fs::remove_file(&path).map_err(|source| WriteError::io(&path, source))?;
        removed.push(path);
    }
    removed.sort();
    Ok(removed)
}
