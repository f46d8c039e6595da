//! Files and folders that a user names: links, pipes, the same twice, and what lies beside records.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capdb/data")
}

/// Ends with code 124 where the program hangs.
fn capdb(arguments: &[&Path]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["30", env!("CARGO_BIN_EXE_capdb")]).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A copy of the database, to put things into.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in capdb_tool::validate::folder_files(&data()).unwrap() {
        let path = folder.path().join(&file.relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file.bytes).unwrap();
    }
    folder
}

#[test]
fn what_is_named_twice_is_looked_at_once() {
    let copied = copy();
    let (db, links) = (copied.path(), tempfile::tempdir().unwrap());
    let (file, archs) = (db.join("arch/sm90.yaml"), db.join("arch"));
    let (link, folder) = (links.path().join("other.yaml"), links.path().join("database"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::os::unix::fs::symlink(db, &folder).unwrap();
    let whole = said(&capdb(&[Path::new("validate"), db]));
    for (paths, files) in [
        (vec![&*file, &*file], Some("1 file ")),
        (vec![&*file, &*link], Some("1 file ")),
        (vec![&*link], Some("1 file ")),
        (vec![&*archs, &*file, &*archs], Some("10 files ")),
        (vec![db, &*file], None),
        (vec![&*file, db], None),
        (vec![&*link, &*archs, &*folder], None),
    ] {
        let output = capdb(&[&[Path::new("validate")], &paths[..]].concat());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{paths:?}: {text}");
        assert!(text.contains(files.unwrap_or(&whole)), "{paths:?}: {text}");
    }
}

#[test]
fn pipes_are_refused_and_named_wherever_they_lie() {
    let copied = copy();
    let pipe = copied.path().join("arch/pipe.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let word = Path::new;
    for arguments in [
        vec![word("validate"), &pipe],
        vec![word("validate"), copied.path()],
        vec![word("test"), word("--cases"), &pipe],
        vec![word("test"), word("--db"), copied.path()],
        vec![word("diff"), copied.path(), copied.path()],
        vec![word("diff"), word("--overlay"), &pipe],
        vec![word("migrate"), &pipe],
        vec![word("migrate"), copied.path()],
        vec![word("show"), word("sm90"), word("--db"), copied.path()],
    ] {
        let output = capdb(&arguments);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(
            text.contains("arch/pipe.yaml: it is a pipe") && text.contains("regular files"),
            "{arguments:?}: {text}"
        );
    }
}

#[test]
fn what_editors_leave_beside_records_is_no_record() {
    let copied = copy();
    let beside = |name: &str| copied.path().join(name);
    std::fs::write(beside("arch/.sm90.yaml"), "id: [").unwrap();
    std::fs::write(beside("arch/sm90.yaml~"), "id: [").unwrap();
    std::os::unix::fs::symlink("somebody@host.1", beside("arch/.#sm90.yaml")).unwrap();
    let clean = capdb(&[Path::new("validate"), copied.path()]);
    assert_eq!(clean.status.code(), Some(0), "{}", said(&clean));
    std::fs::write(beside("arch/latin.yaml"), b"id: caf\xe9").unwrap();
    let found = said(&capdb(&[Path::new("validate"), copied.path()]));
    assert!(found.contains("arch/latin.yaml") && found.contains("not UTF-8"), "{found}");
}

#[test]
fn nothing_in_a_file_or_its_name_steers_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("re\u{1b}[31mcord\u{202e}.yaml");
    std::fs::write(&file, "schema: arch/1\nid: \"x\\e[2J\"\nname: \"\\x9b2J\"\nname: 3\n").unwrap();
    for format in ["full", "concise", "json", "github"] {
        let output = capdb(&[Path::new("validate"), &file, Path::new("--format"), Path::new(format)]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{format}: {text}");
        let controls = text.chars().find(|letter| letter.is_control() && *letter != '\n' || *letter == '\u{202e}');
        assert_eq!(controls, None, "{format}: {text:?}");
    }
}
