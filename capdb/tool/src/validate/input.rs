//! Which files to validate, and in the light of which database.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use capdb::load::{self, FileKind, Loaded, ReadError, TextFile};
use capdb::yaml;

/// Files of a database, and which of them the findings are wanted for.
#[derive(Debug, Default)]
pub struct Input {
    pub files: Vec<TextFile>,
    /// Paths that findings are wanted for; `None` means all.
    pub focus: Option<HashSet<String>>,
    /// Whether the files should be a whole database, so that a missing file is a finding.
    pub complete: bool,
}

/// Stands before the name of an overlay, which has no place in a database.
const OVERLAYS: &str = "overlay:";

impl Input {
    /// What a file is.
    pub(super) fn kind_of(loaded: Loaded) -> Loaded {
        let kind = if loaded.file.relative.starts_with(OVERLAYS) { Some(FileKind::Overlay) } else { loaded.kind };
        Loaded { kind, ..loaded }
    }
}

/// Why the files cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(
        "{0}: there is no .yaml file in this folder, so there is nothing to validate; name a folder of records, or a file"
    )]
    Empty(String),
    /// The caller knows why.
    #[error("the database that the files belong to cannot be read")]
    Context,
}

impl Input {
    /// A whole database in memory.
    pub fn database(files: Vec<TextFile>) -> Self {
        Self { files, focus: None, complete: true }
    }

    /// The given files and folders. A folder with a manifest is a database of its own. Anything else is seen as part of
    /// the database that it lies in, or else as laid over `context`, and only its own findings are reported. What is named
    /// twice, by whatever names, is looked at once.
    pub fn paths(
        paths: &[PathBuf],
        context: impl FnOnce() -> Result<Vec<TextFile>, InputError>,
    ) -> Result<Self, InputError> {
        let mut parts = parts(paths)?;
        if let [(folder, files)] = &mut parts[..]
            && is_database(folder)
        {
            return Ok(Self::database(std::mem::take(files)));
        }
        let mut given: Vec<TextFile> = parts.into_iter().flat_map(|(_, files)| files).collect();
        let home = paths.iter().find_map(|path| home_of(path));
        let context = match &home {
            Some(home) => folder_files(home)?,
            None => context()?,
        };
        given.iter_mut().for_each(|file| file.relative = place(file, home.as_deref()));
        Ok(Self::over(given, context))
    }

    /// Loose files, each taken for what its schema says, laid over a database.
    pub fn loose(mut given: Vec<TextFile>, context: Vec<TextFile>) -> Self {
        given.iter_mut().for_each(|file| file.relative = place(file, None));
        Self::over(given, context)
    }

    fn over(given: Vec<TextFile>, mut files: Vec<TextFile>) -> Self {
        let replaced: HashSet<&str> = given.iter().map(|file| file.relative.as_str()).collect();
        files.retain(|file| !replaced.contains(file.relative.as_str()));
        let focus = given.iter().map(|file| file.path.clone()).collect();
        files.extend(given);
        Self { files, focus: Some(focus), complete: false }
    }
}

/// Every file of a database, by its folder.
pub fn folder_files(folder: &Path) -> Result<Vec<TextFile>, InputError> {
    Ok(load::folder(folder)?)
}

/// One file, not part of a database.
pub fn read_file(path: &Path) -> Result<TextFile, InputError> {
    Ok(load::file(path)?)
}

/// The files of a path that a user names: those below a folder, or the one file.
pub fn files_of(path: &Path) -> Result<Vec<TextFile>, InputError> {
    if path.is_dir() { folder_files(path) } else { Ok(vec![read_file(path)?]) }
}

/// The files of each path, each file with the first path that names it, databases and folders first; paths that bring
/// nothing new are left out.
fn parts(paths: &[PathBuf]) -> Result<Vec<(&Path, Vec<TextFile>)>, InputError> {
    let mut paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    paths.sort_by_key(|path| (!is_database(path), !path.is_dir()));
    let (mut seen, mut parts) = (HashSet::new(), Vec::new());
    for path in paths {
        let mut files = files_of(path)?;
        if files.is_empty() {
            return Err(InputError::Empty(path.display().to_string()));
        }
        // Inside one folder two names of a file are two files: a start reads both.
        files.retain(|file| !seen.contains(&real(Path::new(&file.path))));
        seen.extend(files.iter().map(|file| real(Path::new(&file.path))));
        if !files.is_empty() {
            parts.push((path, files));
        }
    }
    Ok(parts)
}

/// Where a path leads, links followed.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}

fn is_database(folder: &Path) -> bool {
    folder.join("MANIFEST.yaml").is_file()
}

/// The database that a path lies in.
fn home_of(path: &Path) -> Option<PathBuf> {
    real(path).ancestors().skip(1).take(4).find(|folder| is_database(folder)).map(Path::to_path_buf)
}

/// Where a file belongs inside a database: by its place, else by the schema that it names.
fn place(file: &TextFile, home: Option<&Path>) -> String {
    let place = real(Path::new(&file.path));
    if let Some(relative) = home.and_then(|home| place.strip_prefix(home).ok()) {
        return relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
    }
    let name = file.relative.rsplit('/').next().unwrap_or_default();
    let document = yaml::read(&file.path, &file.bytes);
    let word = document.root.as_ref().and_then(|root| root.get("schema")).and_then(|node| node.text());
    let schema = word.and_then(|word| word.split('/').next()).unwrap_or("arch");
    let kind = FileKind::ALL.iter().find(|kind| kind.schema() == schema);
    match kind {
        Some(FileKind::Manifest) => "MANIFEST.yaml".into(),
        Some(FileKind::Overlay) => format!("{OVERLAYS}{name}"),
        Some(FileKind::Vocab | FileKind::Sources | FileKind::Order | FileKind::Stack) => format!("{schema}.yaml"),
        Some(_) => format!("{schema}/{name}"),
        None => format!("arch/{name}"),
    }
}
