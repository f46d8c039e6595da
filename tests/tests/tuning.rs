//! What `archway tune` writes: accepted by every check of the database, followed by a plan, shown by a difference.

use std::path::{Path, PathBuf};

use capdb::database::Database;
use capdb::load::TextFile;
use capdb_tool::compare::compare;
use capdb_tool::validate::{Input, validate};
use engine::plan::tuning::{Measurement, tune};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn recorded() -> Measurement {
    let file = root().join("engine/tests/data/tuning/two-h200.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn file(text: &str) -> TextFile {
    TextFile { path: "site.yaml".to_owned(), relative: "site.yaml".to_owned(), bytes: text.as_bytes().to_vec() }
}

fn findings(text: &str) -> Vec<String> {
    let report = validate(Input::loose(vec![file(text)], Database::embedded_files()));
    report.problems.iter().map(|problem| format!("{}: {}", problem.code, problem.message)).collect()
}

#[test]
fn the_overlay_passes_every_lint() {
    let mut measurement = recorded();
    // Text that YAML would read as something else must survive.
    measurement.groups[0].link = "NVLink: \"18\" links # all of them\n- up".to_owned();
    let text = tune(Database::embedded(), &measurement).unwrap().text;
    assert_eq!(findings(&text), Vec::<String>::new(), "{text}");
    // The check can fail.
    assert!(findings(&text.replace("site-tune:", "other:")).iter().any(|found| found.starts_with("unknown-source")));
    let undated = text.replacen("    date: \"2026-11-29\"\n", "", 1);
    assert!(findings(&undated).iter().any(|found| found.starts_with("incomplete-measurement")), "{undated}");
}

#[test]
fn the_difference_shows_values_and_decisions() {
    // A product that nobody has measured: its record has the architecture's values.
    let measurement = Measurement { record: "h100-sxm".to_owned(), ..recorded() };
    let text = tune(Database::embedded(), &measurement).unwrap().text;
    let tuned = Database::embedded().with_overlay(file(&text)).unwrap();
    let difference = compare(&Database::embedded(), &tuned).unwrap();
    let paths: Vec<&str> = difference.values.iter().map(|change| change.path.as_str()).collect();
    assert!(paths.contains(&"allreduce.symmetric_memory.max_message.2"), "{paths:?}");
    assert!(paths.contains(&"allreduce.preferred"), "{paths:?}");
    assert!(difference.values.iter().all(|change| change.record == "h100-sxm"), "an H200 is not an H100");
    // 128 MiB went to NCCL before.
    let shown = difference.to_text();
    assert!(
        difference.decisions.iter().any(|change| change.old.contains("nccl") && change.new.contains("two_shot")),
        "{shown}"
    );
    assert!(shown.contains("\n    2 ranks on nvswitch, bf16: new, measured site-tune\n      up to "), "{shown}");
    assert!(!shown.contains("{up_to:"), "a ladder is rows: {shown}");
}
