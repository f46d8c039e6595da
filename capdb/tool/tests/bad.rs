//! Bad files: each fails for exactly one named reason, and the whole message is kept as a snapshot.

use std::path::{Path, PathBuf};

use capdb::load::TextFile;
use capdb::problem::Severity;
use capdb::yaml::{MAX_FILE_BYTES, MAX_NODES};
use capdb_tool::diagnostics::{Format, render};
use capdb_tool::validate::{Input, Report, folder_files, read_file, validate};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The small sound database that every bad file is laid over.
fn fixture() -> Vec<TextFile> {
    let mut files = folder_files(&folder("fixture")).unwrap();
    files.iter_mut().for_each(|file| file.path = format!("fixture/{}", file.relative));
    files
}

/// The files of one bad thing, with paths that do not depend on the machine.
fn given(path: &Path) -> Vec<TextFile> {
    let mut files = if path.is_dir() { folder_files(path).unwrap() } else { vec![read_file(path).unwrap()] };
    for file in &mut files {
        let relative = Path::new(&file.path).strip_prefix(folder("bad")).unwrap();
        file.path = format!("bad/{}", relative.display());
    }
    files
}

/// The reason that a file names in its first line, else its own name.
fn expected(name: &str, files: &[TextFile]) -> String {
    let text = String::from_utf8_lossy(&files[0].bytes).into_owned();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("# expect: ").map_or_else(|| name.to_owned(), str::to_owned)
}

#[test]
fn the_fixture_is_sound() {
    let report = validate(Input::database(fixture()));
    assert_eq!(render(&report.problems, &report.sources, Format::Concise, false), "");
}

#[test]
fn each_bad_file_fails_for_exactly_one_reason() {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder("bad")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 60, "{} bad files", paths.len());
    let mut wrong = Vec::new();
    let mut printed = String::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let files = given(&path);
        let expected = expected(&name, &files);
        let report = validate(Input::loose(files, fixture()));
        let codes: Vec<&str> = report.problems.iter().map(|problem| problem.code).collect();
        if codes != [expected.as_str()] || report.problems[0].severity != Severity::Error {
            wrong.push(format!("{name}: expected {expected}, found {codes:?}"));
        }
        let text = render(&report.problems, &report.sources, Format::Full, false);
        printed.push_str(&text.lines().map(|line| format!("{}\n", clip(line))).collect::<String>());
    }
    insta::assert_snapshot!("bad", printed);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Long lines are cut for the snapshot only.
fn clip(line: &str) -> String {
    line.chars().take(240).collect()
}

/// The only finding about a generated text.
fn only(report: Report) -> &'static str {
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    report.problems[0].code
}

fn validate_text(bytes: Vec<u8>) -> Report {
    let file = TextFile { path: "bad/made.yaml".into(), relative: "made.yaml".into(), bytes };
    validate(Input::loose(vec![file], fixture()))
}

#[test]
fn what_is_too_much_is_refused_at_once() {
    let begun = std::time::Instant::now();
    let fifty_megabytes = "notes: [a]\n".repeat(50 * 1024 * 1024 / 11 + 1).into_bytes();
    assert!(fifty_megabytes.len() > 50 * 1024 * 1024);
    assert_eq!(only(validate_text(fifty_megabytes)), "file-too-large");
    assert_eq!(only(validate_text(vec![b'a'; MAX_FILE_BYTES + 1])), "file-too-large");
    let block: String = (0..1500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(only(validate_text(block.into_bytes())), "too-deep");
    assert_eq!(only(validate_text("a:\n".into())), "schema-missing");
    assert_eq!(only(validate_text("[".repeat(2000).into_bytes())), "too-deep");
    assert_eq!(only(validate_text("- ".repeat(1900).into_bytes())), "too-deep");
    let wide = format!("a: [\n{}]\n", "1,\n".repeat(MAX_NODES + 1));
    assert_eq!(only(validate_text(wide.into_bytes())), "too-many-nodes");
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}

#[test]
fn a_file_on_disk_is_never_read_beyond_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.yaml");
    std::fs::File::create(&path).unwrap().set_len(50 << 20).unwrap();
    assert_eq!(read_file(&path).unwrap().bytes.len(), MAX_FILE_BYTES + 1);
}

/// Every file of the database, broken in turn: what refers to it is not at fault, and is not reported.
#[test]
fn one_broken_file_is_one_finding() {
    let whole = folder_files(&folder("../../data")).unwrap();
    let codes = |files: Vec<TextFile>| -> Vec<(&'static str, String)> {
        validate(Input::database(files)).problems.into_iter().map(|problem| (problem.code, problem.path)).collect()
    };
    for place in 0..whole.len() {
        // For the reader, or for the schema.
        let (broken, code) =
            if place % 2 == 0 { (&b"x: ["[..], "syntax") } else { (&b"unknown_key: 1"[..], "unknown-field") };
        let mut files = whole.clone();
        files[place].bytes.extend_from_slice(broken);
        assert_eq!(codes(files), [(code, whole[place].path.clone())]);
    }
}

/// Two files of one id would be two records, of which chance takes one: no program opens such a database.
#[test]
fn an_id_that_two_files_have_is_no_record() {
    let whole = folder_files(&folder("../../data")).unwrap();
    for relative in ["arch/sm90.yaml", "gpu/h200.yaml"] {
        let mut files = whole.clone();
        let mut second = files.iter().find(|file| file.relative == relative).unwrap().clone();
        second.relative = second.relative.replace(".yaml", "-copy.yaml");
        second.path = second.path.replace(".yaml", "-copy.yaml");
        let path = second.path.clone();
        files.push(second);
        let problems = validate(Input::database(files)).problems;
        let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.path.as_str())).collect();
        assert_eq!(found, [("duplicate-record", path.as_str())]);
    }
}
