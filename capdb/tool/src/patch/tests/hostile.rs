//! Hostile installations: a clear error, and nothing is written.

use std::os::unix::fs::symlink;

use super::installation::{GUARDED, Installation, SIZES, UTILS};
use crate::patch::{Options, Plan, PlanError};

/// Nothing can be planned for it, and the folder stays as it is.
fn refused(it: &Installation, why: &str) {
    let before = it.files();
    let options = Options { force: true, allow_guessed: true, ..Options::default() };
    let said = match it.plan("b200", &options) {
        Err(error) => error.to_string(),
        Ok(Plan { files, steps, .. }) => {
            assert!(files.is_empty(), "{why}");
            steps.iter().flat_map(|step| &step.reasons).map(|reason| reason.why.as_str()).collect::<Vec<_>>().join("; ")
        }
    };
    assert!(said.contains(why), "{said:?} does not say {why:?}");
    assert_eq!(it.files(), before);
}

#[test]
fn broken_sources_are_not_edited() {
    let huge = vec![b'#'; (4 << 20) + 1];
    let wide = format!("{SIZES}# \u{e9}\n").chars().map(|c| c as u8).collect::<Vec<u8>>();
    let utf16: Vec<u8> = SIZES.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: [(&[u8], &str); 8] = [
        (&SIZES.as_bytes()[..SIZES.len() - 3], "not valid Python"),
        (b"TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {9: {2: 1},\n", "not valid Python"),
        (&wide, "not UTF-8"),
        (&utf16, "not valid Python"),
        (b"# -*- coding: shift_jis -*-\nTORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {9: {2: 1}}\n", "shift_jis"),
        (b"", "is not assigned"),
        (b"\0\0\0\0", "not valid Python"),
        (&huge, "more than"),
    ];
    for (bytes, why) in cases {
        let it = Installation::new("0.5.15", GUARDED);
        it.write(UTILS, bytes);
        refused(&it, why);
    }
}

#[test]
fn links_and_things_that_are_no_files_are_not_edited() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("utils.py");
    std::fs::write(&target, SIZES).unwrap();
    let it = Installation::new("0.5.15", GUARDED);
    std::fs::remove_file(it.path().join(UTILS)).unwrap();
    symlink(&target, it.path().join(UTILS)).unwrap();
    refused(&it, "symbolic link");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), SIZES);

    let folder = Installation::new("0.5.15", GUARDED);
    let parent = folder.path().join(UTILS).parent().unwrap().to_path_buf();
    let moved = outside.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    for entry in std::fs::read_dir(&parent).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, moved.join(path.file_name().unwrap())).unwrap();
    }
    std::fs::remove_dir_all(&parent).unwrap();
    symlink(&moved, &parent).unwrap();
    refused(&folder, "symbolic link");

    let it = Installation::new("0.5.15", GUARDED);
    std::fs::remove_file(it.path().join(UTILS)).unwrap();
    std::fs::create_dir(it.path().join(UTILS)).unwrap();
    refused(&it, "not a plain file");
    std::fs::remove_dir(it.path().join(UTILS)).unwrap();
    symlink(UTILS, it.path().join(UTILS)).unwrap();
    assert!(it.plan("b200", &Options::default()).unwrap().files.is_empty(), "a link in a circle");
}

#[test]
fn a_name_that_is_hidden_from_the_parser_is_not_edited() {
    for (text, why) in [
        ("exec('TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {9: {2: 1}}')\n", "is not assigned"),
        ("TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {**BASE}\n", "not a `key: value` pair"),
        ("TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {k: {2: 1} for k in (9, 10)}\n", "not a constant"),
    ] {
        let it = Installation::new("0.5.15", GUARDED);
        it.write(UTILS, text.as_bytes());
        refused(&it, why);
    }
    let empty = Installation::new("0.5.15", GUARDED);
    empty.write(UTILS, b"TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {}\n");
    let error = empty.plan("b200", &Options::default()).unwrap_err();
    assert!(matches!(error, PlanError::Source(_)) && error.to_string().contains("is empty"), "{error}");
}
