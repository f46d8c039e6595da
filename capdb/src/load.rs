//! Files of a database: where they lie, what each one is, and their text with places.

use std::io;
use std::path::Path;

use crate::files::read_up_to;
use crate::problem::Problem;
use crate::yaml::{self, Document, Node};

/// What a file is, by its place in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    Manifest,
    Vocab,
    Sources,
    Order,
    Stack,
    Arch,
    Gpu,
    Patch,
    Cases,
    /// Lies outside every database, so no place makes a file one.
    Overlay,
}

impl FileKind {
    pub const ALL: &'static [Self] = &[
        Self::Manifest,
        Self::Vocab,
        Self::Sources,
        Self::Order,
        Self::Stack,
        Self::Arch,
        Self::Gpu,
        Self::Patch,
        Self::Cases,
        Self::Overlay,
    ];

    /// Name of its schema, as in `schema: arch/1`.
    pub const fn schema(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Vocab => "vocab",
            Self::Sources => "sources",
            Self::Order => "order",
            Self::Stack => "stack",
            Self::Arch => "arch",
            Self::Gpu => "gpu",
            Self::Patch => "patch",
            Self::Cases => "cases",
            Self::Overlay => "overlay",
        }
    }

    /// The kind of a file by its path inside the database, e.g. `arch/sm120.yaml`.
    pub fn of(relative: &str) -> Option<Self> {
        match relative {
            "MANIFEST.yaml" => Some(Self::Manifest),
            "vocab.yaml" => Some(Self::Vocab),
            "sources.yaml" => Some(Self::Sources),
            "order.yaml" => Some(Self::Order),
            "stack.yaml" => Some(Self::Stack),
            _ => {
                let (folder, name) = relative.split_once('/')?;
                let kind = [Self::Arch, Self::Gpu, Self::Patch, Self::Cases]
                    .into_iter()
                    .find(|kind| kind.schema() == folder)?;
                (name.ends_with(".yaml") && (kind == Self::Patch || !name.contains('/'))).then_some(kind)
            }
        }
    }
}

/// One file as it lies on disk or in the program.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// As shown to people.
    pub path: String,
    /// Inside the database, with `/`.
    pub relative: String,
    pub bytes: Vec<u8>,
}

impl TextFile {
    /// File name without `.yaml`: what the id of a record must equal.
    pub fn stem(&self) -> &str {
        let name = self.relative.rsplit('/').next().unwrap_or(&self.relative);
        name.strip_suffix(".yaml").unwrap_or(name)
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub file: TextFile,
    /// `None` for a file that has no place in a database.
    pub kind: Option<FileKind>,
    pub document: Document,
}

impl Loaded {
    pub fn read(file: TextFile) -> Self {
        let document = yaml::read(&file.path, &file.bytes);
        Self { kind: FileKind::of(&file.relative), document, file }
    }

    pub fn root(&self) -> Option<&Node> {
        self.document.root.as_ref()
    }

    /// Line and column of a byte, both from 1; columns count characters.
    pub fn place(&self, byte: usize) -> (usize, usize) {
        place(&self.file.bytes, byte)
    }
}

/// Line and column of a byte, both from 1; columns count characters.
pub fn place(bytes: &[u8], byte: usize) -> (usize, usize) {
    let before = &bytes[..byte.min(bytes.len())];
    let line = line(bytes, byte);
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (line, 1 + String::from_utf8_lossy(&before[start..]).chars().count())
}

/// Line of a byte, from 1.
pub fn line(bytes: &[u8], byte: usize) -> usize {
    1 + bytes[..byte.min(bytes.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// A file or folder that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {cause}")]
pub struct ReadError {
    pub path: String,
    pub cause: io::Error,
}

impl ReadError {
    pub fn new(path: &Path, cause: io::Error) -> Self {
        Self { path: path.display().to_string(), cause }
    }
}

/// Every `.yaml` file below a folder, sorted by path. Other files are left alone, and so are hidden ones, which editors and
/// version control keep there; a symbolic link to a folder is not followed. Errors: of the first file that cannot be read.
pub fn folder(root: &Path) -> Result<Vec<TextFile>, ReadError> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let failed = |cause| ReadError::new(&folder, cause);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|cause| ReadError::new(&path, cause))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
                files.push(read(root, &path)?);
            }
        }
    }
    files.sort_by(|a, b| a.relative.cmp(&b.relative));
    Ok(files)
}

fn read(root: &Path, path: &Path) -> Result<TextFile, ReadError> {
    let relative = path.strip_prefix(root).unwrap_or(path);
    let relative = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
    Ok(TextFile { path: path.display().to_string(), relative, bytes: read_bounded(path)? })
}

/// The bytes of one file. A file over the limit is refused by its length; one byte more than the limit is enough to know.
pub fn read_bounded(path: &Path) -> Result<Vec<u8>, ReadError> {
    read_up_to(path, yaml::MAX_FILE_BYTES as u64 + 1).map_err(|cause| ReadError::new(path, cause))
}

/// One file that is not part of a folder. Errors: it cannot be read.
pub fn file(path: &Path) -> Result<TextFile, ReadError> {
    let relative = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(TextFile { path: path.display().to_string(), relative, bytes: read_bounded(path)? })
}

/// Whether a schema word such as `arch/1` or `arch/1.2` can be read by this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaVersion {
    /// The major that this program knows, and a minor up to the one that it knows.
    Known,
    /// Same major, newer minor: unknown keys become warnings.
    NewerMinor,
    NewerMajor,
    /// `capdb migrate` lifts it.
    OlderMajor,
    /// Another schema's name, or no version at all.
    Unreadable,
}

/// Major version of every schema that this program reads.
pub const SCHEMA_MAJOR: u32 = 1;
/// Newest minor version that this program knows.
pub const SCHEMA_MINOR: u32 = 0;

impl SchemaVersion {
    /// Judges the `schema:` word of a file of this kind.
    pub fn of(kind: FileKind, word: &str) -> Self {
        let Some((name, version)) = word.split_once('/') else { return Self::Unreadable };
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        match (name == kind.schema(), major.parse::<u32>(), minor.parse::<u32>()) {
            (true, Ok(SCHEMA_MAJOR), Ok(minor)) => {
                if minor > SCHEMA_MINOR {
                    Self::NewerMinor
                } else {
                    Self::Known
                }
            }
            (true, Ok(major), Ok(_)) => {
                if major > SCHEMA_MAJOR {
                    Self::NewerMajor
                } else {
                    Self::OlderMajor
                }
            }
            _ => Self::Unreadable,
        }
    }
}

/// The first words of a file's problems, for errors that cannot show all of them.
pub fn first_error(problems: &[Problem]) -> String {
    let hint = |problem: &Problem| problem.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
    problems.first().map_or_else(String::new, |first| format!("{}: {}{}", first.path, first.message, hint(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_file_by_its_place() {
        assert_eq!(FileKind::of("arch/sm120.yaml"), Some(FileKind::Arch));
        assert_eq!(FileKind::of("patch/sglang/x.yaml"), Some(FileKind::Patch));
        for stray in ["arch/old/sm1.yaml", "notes.yaml", "arch/sm120.yml", "other/x.yaml"] {
            assert_eq!(FileKind::of(stray), None, "{stray}");
        }
    }

    #[test]
    fn of_a_folder_the_file_is_named_that_cannot_be_read_and_hidden_ones_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let below = |name: &str| root.path().join(name);
        std::fs::create_dir_all(below("arch/.git")).unwrap();
        for name in ["arch/a.yaml", "arch/.a.yaml", "arch/.git/b.yaml", "arch/a.yaml~"] {
            std::fs::write(below(name), "a: 1").unwrap();
        }
        // What an editor leaves while a file is open.
        std::os::unix::fs::symlink("user@host.1", below("arch/.#a.yaml")).unwrap();
        let names = |files: Vec<TextFile>| files.into_iter().map(|file| file.relative).collect::<Vec<_>>();
        assert_eq!(names(folder(root.path()).unwrap()), ["arch/a.yaml"]);
        std::os::unix::fs::symlink("nowhere", below("arch/gone.yaml")).unwrap();
        let error = folder(root.path()).unwrap_err().to_string();
        assert!(error.contains("arch/gone.yaml: ") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn judges_schema_versions() {
        let judge = |word| SchemaVersion::of(FileKind::Arch, word);
        assert_eq!(judge("arch/1"), SchemaVersion::Known);
        assert_eq!(judge("arch/1.7"), SchemaVersion::NewerMinor);
        assert_eq!(judge("arch/2"), SchemaVersion::NewerMajor);
        assert_eq!(judge("arch/0"), SchemaVersion::OlderMajor);
        for word in ["gpu/1", "arch", "arch/x", "arch/", ""] {
            assert_eq!(judge(word), SchemaVersion::Unreadable, "{word}");
        }
    }
}
