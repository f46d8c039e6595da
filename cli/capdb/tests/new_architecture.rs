//! From one command to an architecture that every other command knows.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

fn capdb(arguments: &[&str], db: &Path) -> Output {
    Command::cargo_bin("capdb").unwrap().args(arguments).arg("--db").arg(db).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A copy of the real data in a folder of its own.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capdb/data"), folder.path());
    folder
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

const ADD: &[&str] = &["add-arch", "sm130", "--extends", "sm120", "--compute-capability", "13.0"];

#[test]
fn sm130_is_known_everywhere_after_one_command() {
    let db = copy();
    let before = stdout(&capdb(&["test"], db.path()));
    let added = capdb(ADD, db.path());
    assert_eq!(added.status.code(), Some(0), "{added:?}");
    let said = stdout(&added);
    assert!(said.contains("allreduce.one_shot.max_message.2 = 32KiB (from sm120, arch/sm120.yaml:"), "{said}");
    assert!(said.contains("to measure or to look up:\n  compile.min_toolkit"), "{said}");

    let validated = capdb(&["validate", "--format", "concise"], db.path());
    assert_eq!((validated.status.code(), stdout(&validated).as_str()), (Some(0), ""));
    let tested = capdb(&["test"], db.path());
    assert_eq!(tested.status.code(), Some(0), "{}", stdout(&tested));
    assert_ne!(stdout(&tested), before, "its cases run");
    assert!(stdout(&capdb(&["list"], db.path())).contains("\nsm130  13.0        sm120"));
    let shown = stdout(&capdb(&["show", "13.0"], db.path()));
    assert!(shown.starts_with("schema: arch/1") && shown.contains("id: sm130"), "{shown}");
    assert!(shown.contains("# inherited (guessed starting-value), arch/sm120.yaml:"), "{shown}");
    let explained = capdb(
        &["explain", "--arch", "sm130", "--world-size", "4", "--topology", "pcie_p2p", "--message", "24KiB", "--json"],
        db.path(),
    );
    let explained: serde_json::Value = serde_json::from_str(&stdout(&explained)).unwrap();
    assert_eq!((&explained["verdict"], &explained["allreduce"]), (&"selected".into(), &"one_shot".into()));
    assert_eq!(explained["reasons"][0]["reason"], "value_inherited");
}

#[test]
fn a_second_time_is_refused_and_nothing_is_touched() {
    let db = copy();
    assert_eq!(capdb(ADD, db.path()).status.code(), Some(0));
    let record = std::fs::read(db.path().join("arch/sm130.yaml")).unwrap();
    let again = capdb(ADD, db.path());
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("belongs to the record `sm130` already"));
    assert_eq!(std::fs::read(db.path().join("arch/sm130.yaml")).unwrap(), record);
    let bad = capdb(&["add-arch", "sm140", "--extends", "sm12", "--compute-capability", "14.0"], db.path());
    assert_eq!(bad.status.code(), Some(2));
    assert!(!db.path().join("arch/sm140.yaml").exists());
}
