//! `capdb patch`, `import` and `drift` from outside: exit codes, streams, JSON, and a process that dies half-way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

const SYMM: &str = "sglang/srt/distributed/device_communicators/torch_symm_mem.py";
const UTILS: &str = "sglang/srt/distributed/device_communicators/all_reduce_utils.py";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capdb/tool/tests/installed")
}

/// A copy of the small installation of ours.
struct Installation(tempfile::TempDir);

impl Installation {
    fn new() -> Self {
        let it = Self(tempfile::tempdir().unwrap());
        copy(&sources().join("sglang-0.5.9"), it.0.path());
        it
    }

    /// The same as a later release, whose lookups are guarded.
    fn later() -> Self {
        let it = Self::new();
        std::fs::copy(sources().join("torch_symm_mem_guarded.py"), it.0.path().join(SYMM)).unwrap();
        let metadata = it.0.path().join("sglang-0.5.9.dist-info/METADATA");
        std::fs::write(metadata, "Name: sglang\nVersion: 0.5.15\n").unwrap();
        it
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    fn run(&self, command: &[&str], more: &[&str]) -> Output {
        let path = self.path();
        capdb(&[command, &["--project", "sglang", "--path", &path], more].concat())
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![self.0.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.path().is_dir() {
                    true => folders.push(entry.path()),
                    false => drop(files.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
                }
            }
        }
        files
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Runs in a folder without a database, so that the embedded copy is the default.
fn capdb(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capdb")).current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn talk(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn check_says_what_becomes_of_the_known_patches() {
    let it = Installation::new();
    let output = it.run(&["patch", "check"], &["--gpu", "rtx-pro-6000"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = out(&output);
    for line in [
        "KeyError",
        "known patch     a row copied from another architecture: the feature stays off: ",
        "known patch     a test for the GPU in a model file: changes nothing: the feature stays off",
        "what helps",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    let report = json(&it.run(&["patch", "check"], &["--gpu", "rtx-pro-6000", "--json"]));
    for finding in report["findings"].as_array().unwrap() {
        let at = finding["known_patches"][0]["at"].as_str().unwrap();
        assert!(at.rsplit_once(':').is_some_and(|(_, line)| line.parse::<u32>().is_ok()), "{finding}");
    }
}

#[test]
fn check_takes_the_machine_as_it_is_given() {
    let it = Installation::later();
    let ask = |more: &[&str]| json(&it.run(&["patch", "check"], &[&["--gpu", "h100-sxm", "--json"], more].concat()));
    assert_eq!(ask(&[])["gaps"], 0);
    let without = ask(&["--multicast", "false"]);
    assert_eq!((&without["gaps"], &without["given"]), (&2.into(), &serde_json::json!(["multicast"])));
    let mesh = ask(&["--topology", "nvlink_mesh"]);
    assert_eq!((&mesh["multicast"], &mesh["topology"]), (&false.into(), &"nvlink_mesh".into()));
    let with = json(&it.run(&["patch", "check"], &["--gpu", "rtx-pro-6000", "--multicast", "true", "--json"]));
    let never = |report: &Value| {
        report["findings"].as_array().unwrap().iter().map(|it| it["never"].as_array().unwrap().len()).sum::<usize>()
    };
    assert_eq!(never(&with), 0, "{with}");
    let absent = it.run(&["patch", "check"], &["--gpu", "a100", "--multicast", "true"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(talk(&absent).contains("cannot have multicast"), "{}", talk(&absent));
}

#[test]
fn a_dry_run_prints_a_diff_and_writes_nothing() {
    let it = Installation::later();
    let before = it.files();
    let output = it.run(&["patch", "apply"], &["--gpu", "b200", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let diff = out(&output);
    assert!(diff.starts_with(&format!("--- a/{UTILS}\n+++ b/{UTILS}\n@@ ")), "{diff}");
    assert!(talk(&output).contains("not written"), "{}", talk(&output));
    assert_eq!(it.files(), before);
    // The diff is one that `git apply` takes, and gives what apply writes.
    let patched = Installation::later();
    let path = patched.0.path().join("x.diff");
    std::fs::write(&path, &diff).unwrap();
    let applied = Command::new("git").args(["apply", "x.diff"]).current_dir(patched.0.path()).output().unwrap();
    assert!(applied.status.success(), "{applied:?}");
    assert_eq!(it.run(&["patch", "apply"], &["--gpu", "b200"]).status.code(), Some(0));
    for file in [UTILS, SYMM] {
        let read = |it: &Installation| std::fs::read(it.0.path().join(file)).unwrap();
        assert_eq!(read(&it), read(&patched));
    }
}

#[test]
fn apply_and_revert_go_there_and_back() {
    let it = Installation::new();
    let before = it.files();
    let refused = it.run(&["patch", "apply"], &["--gpu", "rtx-pro-6000"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        out(&refused).contains("nothing was written") && out(&refused).contains("it would not help"),
        "{}",
        out(&refused)
    );
    assert_eq!(it.files(), before);
    let forced = ["--gpu", "rtx-pro-6000", "--force", "--allow-guessed"];
    let done = it.run(&["patch", "apply"], &[&forced[..], &["--json"]].concat());
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let answer = json(&done);
    assert_eq!((&answer["written"], answer["files"].as_array().unwrap().len()), (&true.into(), 2));
    assert!(answer["processes"]["looked_at"].as_u64().is_some(), "{answer}");
    assert_eq!(it.run(&["patch", "apply"], &forced).status.code(), Some(1), "fixed already");
    let reverted = it.run(&["patch", "revert"], &["--json"]);
    assert_eq!((reverted.status.code(), json(&reverted)["restored"].as_array().unwrap().len()), (Some(0), 2));
    assert_eq!(it.files(), before);
    let nothing = it.run(&["patch", "revert"], &[]);
    assert_eq!((nothing.status.code(), out(&nothing).as_str()), (Some(1), ""));
}

#[test]
fn what_cannot_be_done_exits_2() {
    let it = Installation::new();
    for (command, more) in [
        (&["patch", "check"][..], &["--gpu", "h201"][..]),
        (&["patch", "check"], &["--gpu", "h200", "--topology", "ring"]),
        (&["patch", "apply"], &["--gpu", "b200", "--only", "nobody"]),
        (&["patch", "apply"], &["--gpu", "h201"]),
        (&["patch", "apply"], &[]),
    ] {
        let output = it.run(command, more);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{command:?} {more:?}");
        assert!(!talk(&output).is_empty());
    }
    for command in [&["patch", "revert"][..], &["import"]] {
        let output = capdb(&[command, &["--project", "vllm", "--path", &it.path()]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(talk(&output).contains("holds no package `vllm`"), "{}", talk(&output));
    }
    assert_eq!(capdb(&["drift", &it.path(), "/nowhere", "--project", "sglang"]).status.code(), Some(2));
    std::fs::write(it.0.path().join(UTILS), "broken(\n").unwrap();
    for (command, more) in [
        (&["patch", "check"][..], &["--gpu", "b200"][..]),
        (&["patch", "apply"], &["--gpu", "b200"]),
        (&["import"], &[]),
    ] {
        assert_eq!(it.run(command, more).status.code(), Some(2), "{command:?}");
    }
}

#[test]
fn import_and_drift_answer_in_both_formats() {
    let (old, new) = (Installation::new(), Installation::later());
    let import = new.run(&["import"], &[]);
    assert_eq!(import.status.code(), Some(1), "the small tables are not the real ones");
    assert!(out(&import).contains("sources:\n  sglang-0.5.15-"), "{}", out(&import));
    assert!(json(&new.run(&["import"], &["--json"]))["readings"].as_array().is_some_and(|list| !list.is_empty()));
    let drift = |a: &Installation, b: &Installation, more: &[&str]| {
        capdb(&[&["drift", &a.path(), &b.path(), "--project", "sglang"], more].concat())
    };
    assert_eq!(drift(&old, &new, &[]).status.code(), Some(1));
    assert!(out(&drift(&old, &new, &[])).contains("would crash"));
    assert!(!json(&drift(&old, &new, &["--format", "json"]))["changes"].as_array().unwrap().is_empty());
    assert_eq!(drift(&new, &new, &[]).status.code(), Some(0));
}

#[test]
fn a_process_that_dies_at_any_moment_can_be_reverted() {
    for delay in 0..24 {
        let it = Installation::later();
        let before = it.files();
        let mut child = Command::new(env!("CARGO_BIN_EXE_capdb"))
            .args(["patch", "apply", "--project", "sglang", "--gpu", "b200", "--path", &it.path()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(delay * 1500));
        // It may be done already.
        let _ = child.kill();
        child.wait().unwrap();
        for (path, bytes) in it.files().iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "py")) {
            let whole = before.get(path) == Some(bytes) || String::from_utf8_lossy(bytes).contains("10: ");
            assert!(whole, "{} is half written", path.display());
        }
        let reverted = it.run(&["patch", "revert"], &[]);
        assert!(matches!(reverted.status.code(), Some(0 | 1)), "{reverted:?}");
        let after: BTreeMap<_, _> =
            it.files().into_iter().filter(|(path, _)| path.starts_with(it.0.path().join("sglang"))).collect();
        let original: BTreeMap<_, _> =
            before.into_iter().filter(|(path, _)| path.starts_with(it.0.path().join("sglang"))).collect();
        assert_eq!(after, original);
    }
}

#[test]
fn a_missing_path_is_named_and_its_cause_is_said_once() {
    for command in [&["patch", "check", "--gpu", "h200"][..], &["import"], &["patch", "revert"]] {
        let output = capdb(&[command, &["--project", "sglang", "--path", "nowhere"]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {error}");
        assert!(error.contains("nowhere"), "{command:?}: {error}");
        assert!(error.matches("os error").count() <= 1, "{command:?}: {error}");
    }
}
