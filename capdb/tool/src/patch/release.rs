//! Where an installed project lies and which release it is.

use std::path::{Path, PathBuf};

use capdb::record::PatchProject;
use semver::Version;

use super::literal::Literal;
use super::pep440;
use super::python::{self, Source, SourceError};

/// An installed copy.
#[derive(Clone, Debug)]
pub struct Release {
    pub project: PatchProject,
    /// Folder that holds the package, canonical: site-packages.
    pub root: PathBuf,
    /// As the project writes it.
    pub version: String,
    pub semver: Version,
}

/// Why an installation cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("{path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    #[error("{path}: holds no package `{project}`; give the folder site-packages, or the package's own folder")]
    NoPackage { path: String, project: PatchProject },
    #[error(
        "{path}: says nothing about the version of {project}: no METADATA of it, no _version.py; it is not guessed"
    )]
    NoVersion { path: String, project: PatchProject },
    #[error("{path}: two versions of {project} are registered, {first} and {second}; remove the stale one")]
    TwoVersions { path: String, project: PatchProject, first: String, second: String },
    #[error("the version `{0}` has no counterpart among semantic versions, so no record can be chosen")]
    UnknownForm(String),
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl Release {
    /// Looks into site-packages, or into the package's own folder.
    pub fn find(project: PatchProject, path: &Path) -> Result<Self, ReleaseError> {
        let shown = path.display().to_string();
        let folder = path.canonicalize().map_err(|cause| ReleaseError::Io { path: shown.clone(), cause })?;
        let name = project.word();
        let root = if folder.join(name).join("__init__.py").is_file() {
            folder
        } else if folder.file_name().is_some_and(|last| last == name) && folder.join("__init__.py").is_file() {
            folder.parent().map(Path::to_path_buf).unwrap_or(folder)
        } else {
            return Err(ReleaseError::NoPackage { path: shown, project });
        };
        let version = match registered(&root, project)? {
            Some(version) => version,
            None => written(&root, project)?.ok_or(ReleaseError::NoVersion { path: shown, project })?,
        };
        let semver = pep440::to_semver(&version).ok_or_else(|| ReleaseError::UnknownForm(version.clone()))?;
        Ok(Self { project, root, version, semver })
    }
}

/// The version in `*.dist-info/METADATA`.
fn registered(root: &Path, project: PatchProject) -> Result<Option<String>, ReleaseError> {
    let io = |cause| ReleaseError::Io { path: root.display().to_string(), cause };
    let prefix = format!("{}-", project.word());
    let mut found: Option<String> = None;
    for entry in std::fs::read_dir(root).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(&prefix) && name.ends_with(".dist-info")) else {
            continue;
        };
        // A plain file of bounded size inside the tree; anything else says nothing about a version.
        let Ok((_, bytes)) = python::read(root, &format!("{name}/METADATA")) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let field = |key: &str| {
            let head = text.lines().take_while(|line| !line.trim().is_empty());
            head.filter_map(|line| line.split_once(':')).find(|(name, _)| *name == key).map(|(_, value)| value.trim())
        };
        let (Some(owner), Some(version)) = (field("Name"), field("Version")) else { continue };
        if !owner.eq_ignore_ascii_case(project.word()) {
            continue;
        }
        if let Some(first) = found.replace(version.to_owned()).filter(|first| first != version) {
            let (path, second) = (root.display().to_string(), version.to_owned());
            return Err(ReleaseError::TwoVersions { path, project, first, second });
        }
    }
    Ok(found)
}

/// The version in `_version.py`, as build tools write it: `__version__ = version = "1.2.3"`.
fn written(root: &Path, project: PatchProject) -> Result<Option<String>, ReleaseError> {
    let source = match Source::read(root, &format!("{}/_version.py", project.word())) {
        Err(SourceError::Missing(_)) => return Ok(None),
        other => other?,
    };
    for assignment in source.assignments(None, "__version__") {
        let mut right = assignment.child_by_field_name("right");
        while let Some(next) = right.filter(|node| node.kind() == "assignment") {
            right = next.child_by_field_name("right");
        }
        if let Some(Ok(Literal::Text(version))) = right.map(|node| source.evaluate(node)) {
            return Ok(Some(version));
        }
    }
    Ok(None)
}
