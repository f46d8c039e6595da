//! Readings of a release, and what changed between two.

use capdb::database::Database;
use capdb::load::{Loaded, TextFile};
use serde_json::{Value, json};

use super::installation::{GUARDED, Installation, SIZES, SYMM, UNGUARDED, UTILS, embedded};
use crate::patch::card::Card;
use crate::patch::{drift, import};

fn full(version: &str) -> Installation {
    let it = Installation::new(version, GUARDED);
    let row = "{2: 64 * MiB, 4: 64 * MiB, 6: 128 * MiB, 8: 128 * MiB}";
    let sizes =
        format!("MiB = 1024 * 1024\nTORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {{\n    9: {row},\n    10: {row},\n}}\n");
    it.write(UTILS, sizes.as_bytes());
    it.write(SYMM, GUARDED.replace("{9: [4, 6, 8]}", "{9: [4, 6, 8], 10: [4, 6, 8]}").as_bytes());
    it
}

#[test]
fn what_the_database_says_already_is_the_same() {
    let import = import(&full("0.5.15").release(), &Database::embedded(), &embedded()).unwrap();
    assert_eq!(import.untold, []);
    let stands = |arch: &str, block: &str| {
        let reading = import.readings.iter().find(|it| it.arch == arch && it.block == block).unwrap();
        reading.stands.to_string()
    };
    assert_eq!(stands("sm90", "allreduce.symmetric_memory"), "the same as sglang-0.5.23-symm-mem");
    assert_eq!(
        stands("sm120", "allreduce.symmetric_memory"),
        "the same as sglang-0.5.23-symm-mem",
        "no row is a reading too"
    );
    assert_eq!(stands("sm100", "allreduce.multimem"), "the same as sglang-0.5.23-multimem");
    assert_eq!(stands("sm120", "fusions.allreduce_residual_rmsnorm"), "the same as sglang-0.5.23-fusion-gate");
}

#[test]
fn a_new_row_is_told_from_a_changed_one_in_yaml_that_can_be_read() {
    let it = full("0.5.22");
    it.write(UTILS, it.text(UTILS).replace("4: 64 * MiB", "4: 1536 * 1024").as_bytes());
    let import = import(&it.release(), &Database::embedded(), &embedded()).unwrap();
    assert_eq!(import.exit_code(), 1);
    let text = import.to_text();
    let line = "- {source: sglang-0.5.22-symm-mem, value: {max_message: {\"2\": 64MiB, \"4\": 1536KiB, \"6\": 128MiB, \"8\": 128MiB}}}";
    assert!(
        text.contains(line) && text.contains("sglang-0.5.23-symm-mem says {max_message: {\"2\": 64MiB, \"4\": 64MiB"),
        "{text}"
    );
    assert!(text.contains("sglang-0.5.22-symm-mem: {kind: project, title: "), "{text}");
    let file = TextFile { path: "x.yaml".to_owned(), relative: "x.yaml".to_owned(), bytes: text.clone().into_bytes() };
    assert_eq!(Loaded::read(file).document.problems, [], "{text}");
}

#[test]
fn a_release_that_nobody_read_is_compared_by_its_shape() {
    let known = import(&full("0.5.99").release(), &Database::embedded(), &embedded()).unwrap();
    assert!(known.beyond.contains(&"sglang-symm-mem-max-sizes".to_owned()), "{known:?}");
    assert!(known.readings.iter().any(|reading| reading.source == "sglang-0.5.99-symm-mem"));
    let other = full("0.5.99");
    other.write(UTILS, b"TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = load()\n");
    let import = import(&other.release(), &Database::embedded(), &embedded()).unwrap();
    assert_eq!(import.exit_code(), 2);
    assert!(
        import.to_text().contains("# cannot tell: Torch symmetric memory: largest message"),
        "{}",
        import.to_text()
    );
}

#[test]
fn rows_and_what_a_missing_one_does_drift() {
    let (old, new) = (Installation::new("0.5.9", UNGUARDED), full("0.5.15"));
    let drift = drift(&old.release(), &new.release(), &embedded());
    assert_eq!((drift.exit_code(), drift.untold.len()), (1, 0), "{drift:?}");
    let text = drift.to_text();
    for line in [
        &format!("  9: 2: 64MiB, 4: 512KiB ({UTILS}:3) → 2: 64MiB, 4: 64MiB, 6: 128MiB, 8: 128MiB ({UTILS}:3)\n"),
        &format!("  10: nothing → 4, 6, 8 ({SYMM}:2)\n"),
        &format!("  a GPU without a row: would crash ({SYMM}:9) → off, with a warning ({SYMM}:6)\n"),
    ] {
        assert!(text.contains(line.as_str()), "{text}\n{line}");
    }
    assert_eq!(same(&new), 0);
    new.write(UTILS, &SIZES.as_bytes()[..40]);
    assert_eq!(crate::patch::drift(&old.release(), &new.release(), &embedded()).exit_code(), 2);
}

fn same(it: &Installation) -> u8 {
    drift(&it.release(), &it.release(), &embedded()).exit_code()
}

/// The wheels are not part of this run, so here only what the database says in the committed reports is compared with it:
/// rows and the lines that they come from.
#[test]
fn committed_reports_say_what_the_database_says() {
    let (database, records) = (Database::embedded(), embedded());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream/expected");
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let card = Card::new(&database, report["gpu"].as_str().unwrap()).unwrap();
        for finding in report["findings"].as_array().unwrap().iter().filter(|finding| !finding["ours"].is_null()) {
            let record = records.iter().find(|record| record.id == finding["id"]).unwrap();
            let value = record.table.as_ref().and_then(|table| table.database).unwrap();
            let ours = card.ours(value).unwrap().unwrap();
            let now = json!({"row": ours.row, "evidence": ours.evidence()});
            let renew = "capdb/tool/tests/upstream/fetch_and_compare.sh --update";
            assert_eq!(finding["ours"], now, "{}: {}: renew it with {renew}", path.display(), record.id);
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared} rows were compared");
}
