//! Folders outside the loader's path where CUDA libraries usually are: drivers, toolkits, Python wheels.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Existing folders, the preferred ones first.
pub(super) fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let fixed = ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"];
    let mut folders: Vec<PathBuf> = fixed.iter().map(PathBuf::from).collect();
    for home in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| variable(name)) {
        folders.extend(toolkit(&home));
    }
    folders.extend(toolkit(Path::new("/usr/local/cuda")));
    folders.extend(numbered(Path::new("/usr/local"), "cuda-").iter().flat_map(|home| toolkit(home)));
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(name)).chain(python_prefix()) {
        folders.push(prefix.join("lib"));
        folders.extend(wheels(&prefix));
    }
    let mut seen = Vec::new();
    folders.retain(|folder| {
        folder.is_dir()
            && fs::canonicalize(folder).is_ok_and(|real| {
                let new = !seen.contains(&real);
                seen.push(real);
                new
            })
    });
    folders
}

fn toolkit(home: &Path) -> [PathBuf; 2] {
    [home.join("lib64"), home.join("targets/x86_64-linux/lib")]
}

/// Folders `PREFIX*` of `parent`, newest first by name.
fn numbered(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.reverse();
    found
}

/// The prefix of the first `python3` of the path: its packages are what `pip install` fills.
fn python_prefix() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let python = env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| file.exists())?;
    Some(python.parent()?.parent()?.to_owned())
}

/// `lib` of every package below `site-packages/nvidia`.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let pythons = numbered(&prefix.join("lib"), "python3");
    let packages = pythons
        .iter()
        .flat_map(|python| ["site-packages", "dist-packages"].map(|folder| python.join(folder).join("nvidia")));
    packages.flat_map(|nvidia| numbered(&nvidia, "")).map(|package| package.join("lib")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::wheels;

    #[test]
    fn wheels_of_every_python_are_found() {
        let prefix = tempfile::tempdir().expect("can make a folder");
        let package =
            |python: &str, name: &str| prefix.path().join(format!("lib/{python}/site-packages/nvidia/{name}/lib"));
        for (python, name) in [("python3.11", "nccl"), ("python3.12", "cu13"), ("python3.12", "nccl")] {
            fs::create_dir_all(package(python, name)).expect("can make folders");
        }
        let found = wheels(prefix.path());
        let expected = [package("python3.12", "nccl"), package("python3.12", "cu13"), package("python3.11", "nccl")];
        assert_eq!(found.iter().filter(|folder| folder.is_dir()).cloned().collect::<Vec<_>>(), expected);
    }
}
