//! What programs around `capdb` rely on: exit codes, streams, formats, and `--db` in either place.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capdb/data")
}

/// Runs in a folder without a database, so that the embedded copy is the default.
fn capdb(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capdb"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = capdb(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

#[test]
fn clean_data_exits_0_with_talk_on_stderr_alone() {
    for arguments in [&["validate"][..], &["validate", "--format", "concise"], &["validate", "--format", "github"]] {
        let output = capdb(arguments);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), ""), "{arguments:?}");
        assert!(text(&output.stderr).contains("no findings"));
    }
    assert_eq!(json(&["validate", "--json"]), Value::Array(Vec::new()));
    let tested = capdb(&["test"]);
    assert_eq!(tested.status.code(), Some(0));
    assert!(text(&tested.stdout).ends_with(" passed, 0 failed\n"));
}

#[test]
fn the_database_is_named_before_or_after_the_command() {
    let db = data().display().to_string();
    let before = capdb(&["--db", &db, "show", "sm90"]);
    let after = capdb(&["show", "sm90", "--db", &db]);
    assert_eq!(before.status.code(), Some(0), "{before:?}");
    assert_eq!(before.stdout, after.stdout);
    assert_eq!(before.stdout, capdb(&["show", "sm90"]).stdout, "the embedded copy says the same");
    assert_eq!(capdb(&["list", "--db", "/nowhere/at/all"]).status.code(), Some(2));
}

#[test]
fn findings_exit_1_and_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sm999.yaml");
    let record = "schema: arch/1\nid: sm999\ncompute_capability: 99.9\nname: Test\nextends: sm90\n";
    std::fs::write(&path, record).unwrap();
    let file = path.display().to_string();
    let output = capdb(&["validate", &file]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(printed.contains("sm999.yaml:3:21") && printed.contains("+ compute_capability: \"99.9\""), "{printed}");
    let concise = text(&capdb(&["validate", "--format", "concise", &file]).stdout);
    assert!(concise.starts_with(&format!("{file}:3:21: error[quote-required]: ")), "{concise}");
    let github = text(&capdb(&["validate", "--format", "github", &file]).stdout);
    assert!(github.starts_with("::error file=") && github.contains(",line=3,endLine=3,col=21,"), "{github}");
    let problems = json(&["validate", "--json", &file]);
    assert_eq!((&problems[0]["code"], &problems[0]["start"]["line"]), (&"quote-required".into(), &3.into()));
    assert_eq!(problems[0]["fix"]["replacement"], "\"99.9\"");
}

#[test]
fn what_cannot_be_done_exits_2() {
    for arguments in [
        &["validate", "/nowhere.yaml"][..],
        &["show", "h201"],
        &["explain", "--world-size", "2"],
        &["explain", "--gpu", "h201", "--world-size", "2"],
        &["explain", "--arch", "sm90", "--world-size", "0"],
        &["explain", "--arch", "sm90", "--world-size", "2", "--topology", "ring"],
        &["explain", "--arch", "sm90", "--world-size", "2", "--nodes", "3"],
        &["explain", "--arch", "sm90", "--world-size", "2", "--message", "64MB"],
        &["test", "--cases", "/nowhere"],
        &["diff", "/nowhere", "/nowhere"],
        &["migrate", "/nowhere"],
        &["export"],
        &["schema"],
        &["add-arch", "sm130", "--extends", "sm120", "--compute-capability", "13.0"],
        &["nonsense"],
    ] {
        let output = capdb(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    assert!(text(&capdb(&["show", "h201"]).stderr).contains("did you mean `h200`?"));
    let size = text(&capdb(&["explain", "--arch", "sm90", "--world-size", "2", "--message", "64MB"]).stderr);
    assert!(size.contains("write `64MiB`"), "{size}");
    let task = text(&capdb(&["schema"]).stderr);
    assert!(task.contains("<--check|--write>"), "{task}");
}

#[test]
fn a_folder_without_records_is_no_clean_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "no record").unwrap();
    let output = capdb(&["validate", &folder.path().display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no .yaml file"), "{}", text(&output.stderr));
}

/// The product's usual machine, as `archway plan` takes it, where nothing else is said.
#[test]
fn a_product_brings_its_usual_machine() {
    let question = ["explain", "--gpu", "rtx-pro-6000", "--world-size", "4", "--message", "112KiB", "--json"];
    let answer = json(&question);
    assert_eq!((&answer["verdict"], &answer["allreduce"]), (&"selected".into(), &"two_shot".into()));
    assert_eq!(answer["assumed"], json!(["topology: pcie_p2p", "multicast: false"]));
    let said = json(&[&question[..], &["--topology", "pcie_no_p2p", "--multicast", "false"]].concat());
    assert_eq!(said["assumed"], json!([]));
    let small = text(&capdb(&["explain", "--gpu", "h200", "--world-size", "4", "--message", "12"]).stdout);
    assert!(small.contains("with multicast, 12 bytes of bf16"), "{small}");
}

#[test]
fn a_refused_decision_is_an_answer() {
    let question =
        ["explain", "--gpu", "rtx-pro-6000", "--world-size", "4", "--topology", "pcie_p2p", "--message", "24KiB"];
    let refused = [&question[..], &["--allreduce", "multimem", "--json"]].concat();
    assert_eq!(capdb(&refused).status.code(), Some(0));
    let answer = json(&refused);
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["verdict", "allreduce", "fusion", "nearest", "reasons", "rejected", "assumed"]);
    assert_eq!(answer["assumed"], json!(["multicast: false"]));
    assert_eq!((&answer["verdict"], &answer["nearest"]), (&"refused".into(), &"one_shot".into()));
    let reasons = answer["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|line| line["reason"] == "no_multicast" && line["class"] == "gap"), "{answer}");
    assert!(reasons.iter().all(|line| line["at"].as_str().is_some_and(|at| !at.is_empty())), "{answer}");
    let printed = text(&capdb(&refused[..refused.len() - 1]).stdout);
    assert!(
        printed.starts_with("refused: ") && printed.contains("assumed from the product: multicast: false"),
        "{printed}"
    );
}

#[test]
fn failing_cases_exit_1_with_a_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.yaml");
    let case = "schema: cases/1\ncases:\n  - id: wrong\n    why: a test\n    given: {arch: sm90, world_size: 2, topology: nvswitch, message: 64KiB}\n    expect: {verdict: refused, allreduce: one_shot}\n  - id: right\n    why: a test\n    given: {arch: nobody, world_size: 2, topology: nvswitch, message: 64KiB}\n    expect: {reasons: [arch_entry_missing], allreduce: nccl}\n";
    std::fs::write(&path, case).unwrap();
    let folder_name = folder.path().display().to_string();
    let output = capdb(&["test", "--cases", &folder_name]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(lines[0].contains("mine.yaml:3 wrong: verdict: expected refused, got selected"), "{printed}");
    assert_eq!(lines[1], "1 passed, 1 failed");
    assert_eq!(json(&["test", "--cases", &folder_name, "--json"])["failed"], 1);
    std::fs::write(&path, "schema: cases/2\ncases: []\n").unwrap();
    assert_eq!(capdb(&["test", "--cases", &folder_name]).status.code(), Some(2));
}

#[test]
fn every_command_that_prints_json_prints_json() {
    let db = data().display().to_string();
    for arguments in [
        &["list", "--json"][..],
        &["list", "--format", "json"],
        &["show", "h200", "--json"],
        &["show", "h200", "--format", "json"],
        &["test", "--json"],
        &["export", "--format", "json"],
        &["diff", &db, &db, "--json"],
        &[
            "add-arch",
            "sm130",
            "--extends",
            "sm120",
            "--compute-capability",
            "13.0",
            "--dry-run",
            "--json",
            "--db",
            &db,
        ],
    ] {
        assert!(json(arguments).is_object(), "{arguments:?}");
    }
}

#[test]
fn equal_folders_exit_0_and_different_ones_1() {
    let db = data();
    let folder = tempfile::tempdir().unwrap();
    for file in capdb_tool::validate::folder_files(&db).unwrap() {
        let target = folder.path().join(&file.relative);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        let text = String::from_utf8(file.bytes).unwrap();
        std::fs::write(target, text.replace("name: Hopper", "name: Grace")).unwrap();
    }
    let (old, new) = (db.display().to_string(), folder.path().display().to_string());
    assert_eq!(capdb(&["diff", &old, &old]).status.code(), Some(0));
    let output = capdb(&["diff", &old, &new]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("sm90 name: Hopper"), "{}", text(&output.stdout));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_capdb"))
        .args(["export", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn help_teaches_with_examples() {
    for command in [
        "validate",
        "add-arch",
        "show",
        "explain",
        "test",
        "list",
        "diff",
        "schema",
        "migrate",
        "export",
        "completions",
        "import",
        "drift",
        "patch",
        "patch list",
        "patch check",
        "patch apply",
        "patch revert",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = text(&capdb(&words).stdout);
        assert!(help.contains("Examples:\n  capdb ") || help.contains("Examples:\n  git "), "{command}: {help}");
    }
    // The book speaks of every command that the help lists.
    let book =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/commands.md")).unwrap();
    let help = text(&capdb(&["--help"]).stdout);
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        assert!(book.contains(&format!("## `capdb {name}")), "{name} is not in docs/src/commands.md");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&capdb(&["completions", shell]).stdout).contains("add-arch"), "{shell}");
    }
}

#[test]
fn an_overlay_is_shown_explained_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.yaml");
    let text = "schema: overlay/1\napplies_to: h200\nsources:\n  run: {kind: measurement, title: a run, gpu: 2x H200, \
                driver: \"580.1\", date: \"2026-11-30\"}\nallreduce:\n  preferred:\n    - world_size: 2\n      topology: \
                nvlink_mesh\n      ladder: [{up_to: 8MiB, use: two_shot}]\n      evidence: {kind: measured, source: run}\n";
    std::fs::write(&file, text).unwrap();
    let overlay = file.display().to_string();
    assert_eq!(capdb(&["validate", &overlay]).status.code(), Some(0), "{:?}", capdb(&["validate", &overlay]));
    let asked = ["explain", "--gpu", "h200", "--world-size", "2", "--topology", "nvlink_mesh", "--message", "16KiB"];
    assert_eq!(json(&[&asked[..], &["--json", "--overlay", &overlay]].concat())["allreduce"], "two_shot");
    assert_eq!(json(&[&asked[..], &["--json"]].concat())["allreduce"], "one_shot");
    let difference = capdb(&["diff", "--overlay", &overlay]);
    assert_eq!(difference.status.code(), Some(1));
    assert!(text_of(&difference).contains("h200 allreduce.preferred: "), "{difference:?}");
    assert!(text_of(&capdb(&["show", "h200", "--overlay", &overlay])).contains("site.yaml"));
    // Nothing to compare with, and an overlay of nothing.
    assert_eq!(capdb(&["diff"]).status.code(), Some(2));
    std::fs::write(&file, "schema: overlay/1\napplies_to: h2000\n").unwrap();
    let unknown = capdb(&["diff", "--overlay", &overlay]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no record `h2000`"), "{unknown:?}");
}

fn text_of(output: &Output) -> String {
    text(&output.stdout)
}

/// What the README shows behind `$ capdb explain …`, and what the same command says.
#[test]
fn the_readme_shows_an_explanation_as_it_is_printed() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let (_, rest) = readme.split_once("$ capdb explain ").expect("the README explains a decision");
    let (command, rest) = rest.split_once('\n').unwrap();
    let shown = rest.split("```").nth(2).and_then(|block| block.strip_prefix("text\n")).expect("what it says follows");
    let arguments: Vec<&str> = std::iter::once("explain").chain(command.split(' ')).collect();
    assert_eq!(text(&capdb(&arguments).stdout), shown);
}

#[test]
fn a_folder_without_cases_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let output = capdb(&["test", "--cases", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no cases"), "{output:?}");
}

/// What the workflow of pull requests runs.
#[test]
fn schemas_are_checked_against_those_of_another_checkout() {
    let schemas = data().join("../../schemas").display().to_string();
    let code = |more: &[&str]| capdb(&[&["schema", "--schemas", &schemas], more].concat()).status.code();
    assert_eq!(code(&["--check", "--against", &schemas]), Some(0));
    for (more, why) in [
        (&["--against", &schemas][..], "neither checked nor written"),
        (&["--write", "--against", &schemas], "written against"),
        (&["--check", "--write"], "checked and written"),
    ] {
        assert_eq!(code(more), Some(2), "{why}");
    }
    // A published schema that took more than the present one does.
    let published = tempfile::tempdir().unwrap();
    let name = "overlay/v1.schema.json";
    let overlay = std::fs::read_to_string(data().join("../../schemas").join(name)).unwrap();
    let mut wide: Value = serde_json::from_str(&overlay).unwrap();
    wide["properties"]["gone"] = json!({"type": "string"});
    std::fs::create_dir(published.path().join("overlay")).unwrap();
    std::fs::write(published.path().join(name), wide.to_string()).unwrap();
    let path = published.path().display().to_string();
    let against = capdb(&["schema", "--schemas", &schemas, "--check", "--against", &path]);
    assert_eq!(against.status.code(), Some(1), "{against:?}");
}

#[test]
fn one_rank_is_no_ranks() {
    let said = text(&capdb(&["explain", "--gpu", "h200", "--world-size", "1", "--message", "1MiB"]).stdout);
    assert!(said.contains("h200, 1 rank on nvswitch"), "{said}");
}
