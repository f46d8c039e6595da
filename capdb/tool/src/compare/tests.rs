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

/// The fixture with these ladders.
fn with_ladders(ladders: &[&str]) -> Database {
    let list: String = ladders.iter().map(|ladder| format!("    - {{{ladder}}}\n")).collect();
    changed("arch/sm900.yaml", "\nfusions:\n", &format!("\n  preferred:\n{list}fusions:\n"))
}

const UNCHANGED: &str =
    "world_size: 8, topology: nvswitch, ladder: [{up_to: 1MiB, use: nccl}], evidence: {kind: measured, source: bench}";

/// A re-measured ladder, one that is new, one that is gone, and one that stays.
fn ladders() -> (Database, Database) {
    let old = with_ladders(&[
        "world_size: 2, topology: nvswitch, dtype: bf16, ladder: [{up_to: 128KiB, use: one_shot}, {up_to: 3MiB, use: two_shot}, \
         {up_to: 128MiB, use: nccl}], times: [{bytes: 1KiB, nanoseconds: 2100}, {bytes: 2KiB, nanoseconds: 2150}, {bytes: 4KiB, \
         nanoseconds: 2200}, {bytes: 8KiB, nanoseconds: 2300}], evidence: {kind: measured, source: bench, note: before}",
        "world_size: 4, topology: nvswitch, ladder: [{up_to: 1MiB, use: multimem}], evidence: {kind: upstream, source: table, \
         kernel: theirs}",
        UNCHANGED,
    ]);
    let new = with_ladders(&[
        "world_size: 2, topology: nvswitch, dtype: bf16, ladder: [{up_to: 128KiB, use: one_shot}, {up_to: 2MiB, use: two_shot}, \
         {up_to: 256MiB, use: nccl}], fused: [{up_to: 64KiB, use: one_shot}], times: [{bytes: 1KiB, nanoseconds: 2100}, {bytes: \
         4KiB, nanoseconds: 2190}, {bytes: 16KiB, nanoseconds: 2400}, {bytes: 32KiB, nanoseconds: 2500}], evidence: {kind: \
         measured, source: bench, note: after}",
        UNCHANGED,
        "world_size: 4, topology: nvlink_mesh, ladder: [{up_to: 256KiB, use: one_shot}, {up_to: 1MiB, use: two_shot}], evidence: \
         {kind: guessed, source: judgement}",
    ]);
    (old, new)
}

#[test]
fn ladders_are_rows_of_what_changed_on_each() {
    let (old, new) = ladders();
    let text = compare(&old, &new).unwrap().to_text();
    let own = text.split("  sm901 ").next().unwrap();
    insta::assert_snapshot!(own);
}

#[test]
fn a_ladder_in_json_is_one_value() {
    let (old, new) = ladders();
    let document = serde_json::to_value(compare(&old, &new).unwrap()).unwrap();
    let change = document["values"].as_array().unwrap().iter().find(|change| change["path"] == "allreduce.preferred");
    let stated = change.unwrap()["new"].as_object().unwrap();
    assert_eq!(stated.keys().collect::<Vec<_>>(), ["value", "evidence", "file", "line"]);
    let value = stated["value"].as_str().unwrap();
    assert!(value.starts_with("[{world_size: 2, ") && value.contains("{up_to: 2MiB, use: two_shot}"), "{value}");
}

#[test]
fn the_order_of_ladders_and_of_their_keys_is_no_change_of_a_rung() {
    let turned = "topology: nvlink_mesh, world_size: 4, ladder: [{use: nccl, up_to: 1MiB}], evidence: {source: bench, kind: measured}";
    let straight = "world_size: 4, topology: nvlink_mesh, ladder: [{up_to: 1MiB, use: nccl}], evidence: {kind: measured, source: bench}";
    let text = |old: &[&str], new: &[&str]| compare(&with_ladders(old), &with_ladders(new)).unwrap().to_text();
    assert_eq!(text(&[straight, UNCHANGED], &[turned, UNCHANGED]), "");
    let reordered = text(&[straight, UNCHANGED], &[UNCHANGED, straight]);
    assert!(reordered.contains("\n    the same ladders in another order\n    2 ladders unchanged\n"), "{reordered}");
}
