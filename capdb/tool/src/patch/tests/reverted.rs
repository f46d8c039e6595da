//! Restoring, after a whole apply and after an interrupted one.

use super::installation::{GUARDED, Installation, SIZES, SYMM, UNGUARDED, UTILS};
use crate::patch::{FOLDER, Options, WriteError, carry_out, revert};

fn edited() -> (Installation, std::collections::BTreeMap<String, Vec<u8>>) {
    let it = Installation::new("0.5.9", UNGUARDED);
    let before = it.files();
    carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
    assert_ne!(it.files(), before);
    (it, before)
}

#[test]
fn everything_is_as_it_was() {
    let (it, before) = edited();
    let restored = revert(&it.release()).unwrap();
    assert_eq!(restored.restored, [UTILS, SYMM]);
    assert_eq!(it.files(), before);
    assert!(matches!(revert(&it.release()), Err(WriteError::NothingEdited(_))));
    assert_eq!(it.files(), before, "asking again leaves nothing behind");
}

#[test]
fn an_interruption_anywhere_can_be_reverted() {
    let (it, before) = edited();
    let (utils, symm) = (it.text(UTILS), it.text(SYMM));
    // The record is written first, then one file after the other: each state that an interruption can leave.
    for (first, second) in [(SIZES, UNGUARDED), (utils.as_str(), UNGUARDED), (utils.as_str(), symm.as_str())] {
        it.write(UTILS, first.as_bytes());
        it.write(SYMM, second.as_bytes());
        it.write("sglang/srt/distributed/device_communicators/.capdb-patch-x1y2z3", b"half a te");
        revert(&it.release()).unwrap();
        assert_eq!(it.files(), before);
        carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
        assert_eq!((it.text(UTILS), it.text(SYMM)), (utils.clone(), symm.clone()));
    }
}

#[test]
fn somebody_elses_change_is_named_and_kept() {
    let (it, _) = edited();
    it.write(SYMM, format!("{}# mine\n", it.text(SYMM)).as_bytes());
    let before = it.files();
    let error = revert(&it.release()).unwrap_err();
    assert!(matches!(&error, WriteError::ChangedSince { path, .. } if path == SYMM), "{error}");
    assert_eq!(it.files(), before, "the other file is not restored either");
    std::fs::remove_file(it.path().join(SYMM)).unwrap();
    assert!(matches!(revert(&it.release()), Err(WriteError::ChangedSince { .. })));
}

#[test]
fn two_cards_are_reverted_together() {
    let (it, before) = edited();
    let options = Options { force: true, allow_guessed: true, ..Options::default() };
    carry_out(&it.release(), &it.plan("rtx-pro-6000", &options).unwrap()).unwrap();
    assert!(it.text(UTILS).contains("\n    10: {") && it.text(UTILS).contains("\n    12: {"), "{}", it.text(UTILS));
    revert(&it.release()).unwrap();
    assert_eq!(it.files(), before);
}

#[test]
fn a_reinstalled_package_starts_anew() {
    let it = Installation::new("0.5.15", GUARDED);
    carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
    let newer = format!("# a newer release\n{SIZES}");
    it.write(UTILS, newer.as_bytes());
    carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
    revert(&it.release()).unwrap();
    assert_eq!(it.text(UTILS), newer);
}

#[test]
fn a_damaged_record_or_original_restores_nothing() {
    let (it, _) = edited();
    let record = format!("{FOLDER}/sglang/receipt.json");
    let good = it.text(&record);
    for (bad, why) in [
        (good[..40].to_owned(), "not a record of an edit"),
        (good.replace("patch-receipt/1", "patch-receipt/9"), "its schema is"),
        (good.replace(UTILS, "../../../../../etc/hostname"), "symbolic link"),
        (good.replace("\"original\": \"", "\"original\": \"../"), "not a checksum"),
    ] {
        it.write(&record, bad.as_bytes());
        let before = it.files();
        let said = revert(&it.release()).unwrap_err().to_string();
        assert!(said.contains(why) || said.contains("no such file") || said.contains("changed since"), "{why}: {said}");
        assert_eq!(it.files(), before, "{why}");
    }
    it.write(&record, good.as_bytes());
    let originals = it.path().join(FOLDER).join("sglang/originals");
    for entry in std::fs::read_dir(originals).unwrap() {
        std::fs::write(entry.unwrap().path(), b"spoilt").unwrap();
    }
    let before = it.files();
    assert!(revert(&it.release()).unwrap_err().to_string().contains("is not what the record says"));
    assert_eq!(it.files(), before);
}
