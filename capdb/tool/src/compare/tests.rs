use std::path::Path;

use capdb::load::TextFile;

use super::*;
use crate::validate::folder_files;

fn files() -> Vec<TextFile> {
    folder_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture")).unwrap()
}

fn changed(relative: &str, from: &str, to: &str) -> Database {
    let mut files = files();
    let file = files.iter_mut().find(|file| file.relative == relative).unwrap();
    let text = String::from_utf8(file.bytes.clone()).unwrap();
    assert!(text.contains(from));
    file.bytes = text.replacen(from, to, 1).into_bytes();
    Database::from_files(files).unwrap()
}

#[test]
fn equal_databases_differ_in_nothing() {
    let database = || Database::from_files(files()).unwrap();
    assert!(compare(&database(), &database()).unwrap().is_empty());
}

#[test]
fn a_limit_that_moves_is_seen_in_the_record_its_child_and_the_decisions() {
    let old = Database::from_files(files()).unwrap();
    let new = changed("arch/sm900.yaml", "{2: 1MiB, 4: 512KiB}", "{2: 1MiB, 4: 256KiB}");
    let difference = compare(&old, &new).unwrap();
    let records: Vec<&str> = difference.values.iter().map(|change| change.record.as_str()).collect();
    assert_eq!(records, ["sm900", "sm901"]);
    assert_eq!(difference.values[0].path, "allreduce.one_shot.max_message.4");
    let text = difference.to_text();
    assert!(text.contains("512KiB (measured bench, arch/sm900.yaml:"), "{text}");
    assert!(
        text.contains(
            "sm900, 4 ranks on nvlink_mesh, one_shot, 262145 to 512KiB: selected one_shot [fusion_arch_unsupported] → refused [message_over_limit]"
        ),
        "{text}"
    );
    // Nothing else moved.
    assert!(difference.decisions.iter().all(|change| change.world_size == 4), "{text}");
}

#[test]
fn evidence_alone_is_a_change() {
    let old = Database::from_files(files()).unwrap();
    let new = changed(
        "arch/sm900.yaml",
        "evidence: {kind: measured, source: bench}",
        "evidence: {kind: guessed, source: judgement}",
    );
    let difference = compare(&old, &new).unwrap();
    assert!(difference.values.iter().any(|change| change.path == "allreduce.one_shot.max_message.2"));
    assert!(difference.decisions.iter().any(|change| change.request == "auto, strict"), "{}", difference.to_text());
}

#[test]
fn a_new_record_is_named() {
    let old =
        Database::from_files(files().into_iter().filter(|file| file.relative != "gpu/g900.yaml").collect()).unwrap();
    let new = Database::from_files(files()).unwrap();
    assert_eq!(compare(&old, &new).unwrap().added, ["g900"]);
    assert_eq!(compare(&new, &old).unwrap().removed, ["g900"]);
}
