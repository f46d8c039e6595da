//! The CUDA libraries of this machine: looked for once, loaded when first needed, reported by name.
//!
//! Nothing of CUDA is linked. Every entry into CUDA begins with [`require`], because the bindings panic where a library
//! is absent; what this module has loaded they find by its name.

mod folders;
mod open;

use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Serialize;

use open::Opened;

/// A library that the engine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// libcuda: comes with the driver.
    Driver,
    /// The run-time compiler.
    Nvrtc,
    /// Matrix products of many rows.
    CublasLt,
    /// Collectives between GPUs.
    Nccl,
}

/// A library that was found and loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    pub library: Library,
    pub path: PathBuf,
    /// As the library itself says, `major.minor[.patch]`. For the driver: the newest CUDA that it runs.
    pub version: String,
}

/// A library that was not found, or not one that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "{} is not usable: looked for {} in {}{}; {}",
    .library.title(), .names.join(", "), .folders.join(", "), open::refusals(.refused), .library.remedy()
)]
pub struct Missing {
    pub library: Library,
    pub names: Vec<String>,
    pub folders: Vec<String>,
    /// Files that were there and could not be used, with the reason.
    pub refused: Vec<(PathBuf, String)>,
}

impl Library {
    pub const ALL: [Self; 4] = [Self::Driver, Self::Nvrtc, Self::CublasLt, Self::Nccl];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Driver => "the NVIDIA driver (libcuda)",
            Self::Nvrtc => "the CUDA run-time compiler (NVRTC)",
            Self::CublasLt => "cuBLASLt",
            Self::Nccl => "NCCL",
        }
    }

    /// File names, the preferred one first.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &["libcuda.so.1", "libcuda.so"],
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            Self::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
            Self::Nccl => &["libnccl.so.2", "libnccl.so"],
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Driver => "install the NVIDIA driver (R570 or newer); --device cpu serves models without it",
            Self::Nvrtc => {
                "install a CUDA 12 or 13 toolkit or the Python package nvidia-cuda-nvrtc, or serve with --kernels and a pack \
                 that `archway kernels build` made elsewhere"
            }
            Self::CublasLt => "install a CUDA 12 or 13 toolkit or the Python package nvidia-cublas",
            Self::Nccl => "install libnccl2 or the Python package nvidia-nccl-cu13; one GPU works without it",
        }
    }
}

/// The library, loaded; or why not. The answer is found once and stays.
pub fn require(library: Library) -> Result<&'static Found, &'static Missing> {
    static ANSWERS: [OnceLock<Result<Opened, Missing>>; Library::ALL.len()] = [const { OnceLock::new() }; 4];
    let answer = ANSWERS[library as usize].get_or_init(|| open::find(library, &folders::folders()));
    answer.as_ref().map(|opened| &opened.found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Library, Missing, open};

    /// A folder with something that only looks like a library must not end the process, and must be named.
    #[test]
    fn what_was_looked_for_is_in_the_message() {
        let folder = tempfile::tempdir().expect("can make a folder");
        let broken = folder.path().join("libnccl.so.2");
        fs::write(&broken, "not a library").expect("can write");
        let missing = Missing {
            library: Library::Nccl,
            names: vec!["libnccl.so.2".to_owned()],
            folders: vec!["the system's libraries".to_owned(), folder.path().display().to_string()],
            refused: open::try_file(Library::Nccl, &broken)
                .err()
                .into_iter()
                .map(|why| (broken.clone(), why))
                .collect(),
        };
        let text = missing.to_string();
        for part in ["NCCL", "libnccl.so.2", &folder.path().display().to_string(), "one GPU works without it"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(missing.refused.len(), 1, "the broken file is named with its reason");
    }

    /// A real library without the function that gives its version is refused, not called.
    #[test]
    fn another_library_under_the_name_is_refused() {
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux says what is loaded");
        let c = maps.split_whitespace().find(|word| word.contains("libc.so")).expect("tests are linked to libc");
        let why = open::try_file(Library::Nvrtc, c.as_ref()).map(|_| ()).expect_err("libc is not a compiler");
        assert!(why.contains("nvrtcVersion"), "{why}");
    }
}
