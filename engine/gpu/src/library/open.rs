//! Opening a library and asking its version.

use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library as Handle;

use super::{Found, Library, Missing};

/// A loaded library. The handle keeps it loaded: the bindings find it by its name from then on.
pub(super) struct Opened {
    pub found: Found,
    _handle: Handle,
}

/// Where the system's loader looks, in messages.
const SYSTEM: &str = "the system's libraries";

/// Looks where the system's loader does, then in `folders`.
pub(super) fn find(library: Library, folders: &[PathBuf]) -> Result<Opened, Missing> {
    let mut refused = Vec::new();
    for name in library.names() {
        if let Ok(opened) = try_file(library, Path::new(name)) {
            return Ok(opened);
        }
    }
    for path in folders.iter().flat_map(|folder| library.names().iter().map(move |name| folder.join(name))) {
        if !path.exists() {
            continue;
        }
        match try_file(library, &path) {
            Ok(opened) => return Ok(opened),
            Err(why) => refused.push((path, why)),
        }
    }
    let shown = folders.iter().map(|folder| folder.display().to_string());
    Err(Missing {
        library,
        names: library.names().iter().map(|name| (*name).to_owned()).collect(),
        folders: std::iter::once(SYSTEM.to_owned()).chain(shown).collect(),
        refused,
    })
}

/// Loads one file, or one name by the system's rules. Errors: why it cannot be used.
pub(super) fn try_file(library: Library, path: &Path) -> Result<Opened, String> {
    // SAFETY: NVIDIA's libraries have initialisers without side effects on this program; a file that is none of them
    // is a user's own library folder, trusted as the loader trusts it.
    let handle = unsafe { Handle::new(path) }.map_err(|error| error.to_string())?;
    let version = version(library, &handle)?;
    let path = if path.is_absolute() { path.to_owned() } else { loaded_path(path).unwrap_or_else(|| path.to_owned()) };
    // A link's target tells more: libcuda.so.1 is libcuda.so.580.65.06.
    let path = fs::canonicalize(&path).unwrap_or(path);
    Ok(Opened { found: Found { library, path, version }, _handle: handle })
}

/// What the library says of itself.
fn version(library: Library, handle: &Handle) -> Result<String, String> {
    match library {
        Library::Driver => {
            let number = ask(handle, "cuDriverGetVersion")?;
            Ok(format!("{}.{}", number / 1000, number % 1000 / 10))
        }
        Library::Nvrtc => nvrtc_version(handle),
        Library::CublasLt => {
            // SAFETY: `size_t cublasLtGetVersion(void)` is this function's signature in every release.
            let number = unsafe {
                let function = handle.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion\0");
                function.map_err(|error| error.to_string())?()
            };
            let (major, rest) =
                if number >= 100_000 { (number / 10_000, number % 10_000) } else { (number / 1000, number % 1000) };
            Ok(format!("{major}.{}.{}", rest / 100, rest % 100))
        }
        Library::Nccl => {
            let number = ask(handle, "ncclGetVersion")?;
            Ok(format!("{}.{}.{}", number / 10_000, number % 10_000 / 100, number % 100))
        }
    }
}

/// Calls a function that writes one number and returns 0.
fn ask(handle: &Handle, name: &str) -> Result<c_int, String> {
    let mut number = 0;
    // SAFETY: both functions asked this way have the signature `int NAME(int *)`.
    let code = unsafe {
        let function = handle.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(name.as_bytes());
        function.map_err(|error| error.to_string())?(&raw mut number)
    };
    if code == 0 { Ok(number) } else { Err(format!("{name} answers with error {code}")) }
}

fn nvrtc_version(handle: &Handle) -> Result<String, String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: `nvrtcResult nvrtcVersion(int *major, int *minor)` is this function's signature in every release.
    let code = unsafe {
        let function = handle.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion\0");
        function.map_err(|error| format!("no nvrtcVersion: {error}"))?(&raw mut major, &raw mut minor)
    };
    if code == 0 { Ok(format!("{major}.{minor}")) } else { Err(format!("nvrtcVersion answers with error {code}")) }
}

/// Where the loader found a library that is loaded now.
fn loaded_path(name: &Path) -> Option<PathBuf> {
    let name = name.to_str()?;
    // libcuda.so.1 may be loaded from a file called libcuda.so.580.65.06.
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
    let mut found =
        paths.filter(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(&format!("{stem}.so"))));
    found.next().map(PathBuf::from)
}

/// The refused files as a part of a message.
pub(super) fn refusals(refused: &[(PathBuf, String)]) -> String {
    let one = |(path, why): &(PathBuf, String)| format!("; {} cannot be used: {why}", path.display());
    refused.iter().map(one).collect()
}
