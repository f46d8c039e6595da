//! The record of an edit, written before the edit, so that `revert` works after an interruption too.
//!
//! `.capdb-patch/PROJECT/` in site-packages holds `receipt.json` and every original under its checksum.

use std::fs;
use std::path::{Path, PathBuf};

use capdb::files::read_up_to;
use serde::{Deserialize, Serialize};

use super::write::{replace, sync_folder};
use crate::patch::edit::checksum;
use crate::patch::release::Release;

/// Folder in site-packages.
pub const FOLDER: &str = ".capdb-patch";
const SCHEMA: &str = "patch-receipt/1";
/// More than thousands of entries have.
const MAX_BYTES: u64 = 4 << 20;

/// What was written, and how it was before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    pub schema: String,
    pub project: String,
    pub files: Vec<Entry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Below site-packages, with `/`.
    pub path: String,
    /// Release that was installed.
    pub version: String,
    /// SHA-256 of the original, which lies under this name.
    pub original: String,
    /// SHA-256 of every text that was written or about to be.
    pub written: Vec<String>,
    /// GPU and record of every edit.
    pub edits: Vec<String>,
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    #[error("{path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    #[error("{path}: is not a record of an edit ({why}); the originals are in the same folder")]
    Broken { path: String, why: String },
    #[error("{path}: the original is not what the record says it was; reinstall the package to have it back")]
    Original { path: String },
}

/// The folder of one project's record.
pub struct Store {
    pub folder: PathBuf,
}

impl Store {
    pub fn new(release: &Release) -> Self {
        Self { folder: release.root.join(FOLDER).join(release.project.word()) }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("receipt.json")
    }

    pub fn original(&self, checksum: &str) -> PathBuf {
        self.folder.join("originals").join(checksum)
    }

    /// The record, `None` where nothing was edited.
    pub fn load(&self) -> Result<Option<Receipt>, ReceiptError> {
        let path = self.path();
        let broken = |why: String| ReceiptError::Broken { path: path.display().to_string(), why };
        let bytes = match read_up_to(&path, MAX_BYTES + 1) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|source| io(&path, source))?,
        };
        if bytes.len() as u64 > MAX_BYTES {
            return Err(broken("it is too large".to_owned()));
        }
        let receipt: Receipt = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        if receipt.schema != SCHEMA {
            return Err(broken(format!("its schema is `{}`, not `{SCHEMA}`", receipt.schema)));
        }
        let digits = |sum: &String| sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
        for entry in &receipt.files {
            if let Some(sum) = entry.written.iter().chain([&entry.original]).find(|sum| !digits(sum)) {
                return Err(broken(format!("`{sum}` is not a checksum")));
            }
        }
        Ok(Some(receipt))
    }

    /// The bytes of an original, checked against its name.
    pub fn read_original(&self, sum: &str) -> Result<Vec<u8>, ReceiptError> {
        let path = self.original(sum);
        let bytes = read_up_to(&path, MAX_BYTES).map_err(|source| io(&path, source))?;
        if checksum(&bytes) == sum {
            Ok(bytes)
        } else {
            Err(ReceiptError::Original { path: path.display().to_string() })
        }
    }

    /// Keeps an original. One that is there is kept as it is.
    pub fn keep(&self, bytes: &[u8]) -> Result<(), ReceiptError> {
        let sum = checksum(bytes);
        if self.read_original(&sum).is_ok() {
            return Ok(());
        }
        let path = self.original(&sum);
        let folder = self.folder.join("originals");
        fs::create_dir_all(&folder).map_err(|source| io(&folder, source))?;
        replace(&path, bytes).map_err(|source| io(&path, source))
    }

    pub fn save(&self, receipt: &Receipt) -> Result<(), ReceiptError> {
        let path = self.path();
        let text = serde_json::to_string_pretty(receipt).map_err(|error| io(&path, error.into()))?;
        fs::create_dir_all(&self.folder).map_err(|source| io(&path, source))?;
        replace(&path, format!("{text}\n").as_bytes()).map_err(|source| io(&path, source))
    }

    /// Removes the record first and then the originals, so that an interruption leaves no record without its originals.
    pub fn remove(&self) -> Result<(), ReceiptError> {
        let path = self.path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(&path, error)),
            _ => {}
        }
        if self.folder.is_dir() {
            sync_folder(&self.folder).map_err(|source| io(&self.folder, source))?;
            fs::remove_dir_all(&self.folder).map_err(|source| io(&self.folder, source))?;
        }
        // The lock lies there as well; the last project takes the folder away.
        if let Some(outer) = self.folder.parent() {
            let lock_alone = fs::read_dir(outer).is_ok_and(|mut entries| entries.all(|it| is_lock(it.ok())));
            if lock_alone {
                fs::remove_dir_all(outer).map_err(|source| io(outer, source))?;
            }
        }
        Ok(())
    }
}

fn is_lock(entry: Option<fs::DirEntry>) -> bool {
    entry.is_some_and(|entry| entry.file_name() == "lock")
}

fn io(path: &Path, cause: std::io::Error) -> ReceiptError {
    ReceiptError::Io { path: path.display().to_string(), cause }
}

impl Receipt {
    pub fn new(release: &Release) -> Self {
        Self { schema: SCHEMA.to_owned(), project: release.project.to_string(), files: Vec::new() }
    }

    /// Notes an edit that is about to be made. A file that somebody else changed since its last entry starts anew; what it
    /// was before that entry stays among the originals.
    pub fn note(&mut self, path: &str, version: &str, before: &str, after: &str, edits: &[String]) {
        let known = self.files.iter_mut().find(|entry| entry.path == path);
        match known.filter(|entry| entry.written.iter().any(|sum| sum == before)) {
            Some(entry) => {
                entry.written.retain(|sum| sum == before);
                entry.written.push(after.to_owned());
                entry.edits.extend_from_slice(edits);
            }
            None => {
                self.files.retain(|entry| entry.path != path);
                self.files.push(Entry {
                    path: path.to_owned(),
                    version: version.to_owned(),
                    original: before.to_owned(),
                    written: vec![after.to_owned()],
                    edits: edits.to_vec(),
                });
            }
        }
    }
}
