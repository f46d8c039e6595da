//! What `check` says of each shape, and of hostile files.

use capdb::record::PatchProject;

use super::installation::{
    COMMUNICATOR, GATE, GUARDED, Installation, SIZES, SYMM, UNGUARDED, UTILS, card, embedded, find,
};
use crate::patch::{Effect, Release, ReleaseError, Status, check};

const SIZES_ID: &str = "sglang-symm-mem-max-sizes";

#[test]
fn an_unguarded_lookup_would_crash_and_a_row_would_stay_inert() {
    let report = Installation::new("0.5.9", UNGUARDED).check("rtx-pro-6000");
    let sizes = find(&report, SIZES_ID);
    assert_eq!((sizes.status, sizes.effect), (Status::Missing, Some(Effect::WouldCrash)));
    assert_eq!(sizes.effect_at.as_deref(), Some(format!("{SYMM}:9").as_str()));
    assert!(sizes.never.iter().any(|never| never.whole && never.at == format!("{SYMM}:11")), "{sizes:?}");
    let multimem = find(&report, "sglang-multimem-world-sizes");
    assert_eq!(multimem.effect, Some(Effect::WouldCrash));
    assert!(multimem.not_reached.is_some());
    let gate = find(&report, "sglang-fusion-gate-communicator");
    assert_eq!((gate.status, gate.effect), (Status::Missing, Some(Effect::OffSilently)));
    assert_eq!(gate.at, format!("{COMMUNICATOR}:6"));
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn a_test_of_the_major_before_the_lookup_counts() {
    let report = Installation::new("0.5.9", UNGUARDED).check("l40s");
    assert_eq!(find(&report, SIZES_ID).effect, Some(Effect::OffWithWarning));
}

#[test]
fn a_guarded_lookup_is_off_with_a_warning_and_a_default_is_silent() {
    let report = Installation::new("0.5.15", GUARDED).check("rtx-pro-6000");
    assert_eq!(find(&report, SIZES_ID).effect, Some(Effect::OffWithWarning));
    assert_eq!(find(&report, "sglang-multimem-world-sizes").effect, Some(Effect::SilentFallback));
}

#[test]
fn a_covered_card_sees_its_row_in_bytes() {
    let report = Installation::new("0.5.15", GUARDED).check("h100-sxm");
    let sizes = find(&report, SIZES_ID);
    assert_eq!((sizes.status, sizes.at.as_str()), (Status::Covered, format!("{UTILS}:3").as_str()));
    let row = sizes.theirs.as_ref().unwrap();
    assert_eq!(row.iter().map(|(ranks, bytes)| (*ranks, *bytes)).collect::<Vec<_>>(), [(2, 64 << 20), (4, 512 << 10)]);
    assert_eq!(find(&report, "sglang-fusion-gate-communicator").status, Status::Covered);
}

#[test]
fn an_unknown_release_is_not_guessed() {
    for version in ["0.4.0", "0.6.0", "0.5.15rc1"] {
        let report = Installation::new(version, GUARDED).check("h200");
        assert_eq!((report.exit_code(), report.findings.len()), (2, 0), "{version}");
    }
    let it = Installation::new("2025!1", GUARDED);
    assert!(matches!(Release::find(PatchProject::Sglang, it.path()), Err(ReleaseError::UnknownForm(_))));
    assert!(matches!(Release::find(PatchProject::Vllm, it.path()), Err(ReleaseError::NoPackage { .. })));
    std::fs::remove_dir_all(it.path().join("sglang-1.dist-info")).unwrap();
    assert!(matches!(Release::find(PatchProject::Sglang, it.path()), Err(ReleaseError::NoVersion { .. })));
    it.write("sglang/_version.py", b"__version__ = version = '0.5.15'\n");
    assert_eq!(Release::find(PatchProject::Sglang, &it.path().join("sglang")).unwrap().version, "0.5.15");
    it.write("sglang-1.dist-info/METADATA", b"Name: sglang\nVersion: 0.5.15\n");
    it.write("sglang-2.dist-info/METADATA", b"Name: sglang\nVersion: 0.5.9\n");
    assert!(matches!(Release::find(PatchProject::Sglang, it.path()), Err(ReleaseError::TwoVersions { .. })));
}

#[test]
fn hostile_tables_cannot_be_told_and_say_why() {
    let deep = format!("TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {{9: {}1{}}}\n", "(".repeat(3000), ")".repeat(3000));
    let huge = vec![b'#'; (4 << 20) + 1];
    let cases: [(&[u8], &str); 10] = [
        (&SIZES.as_bytes()[..60], "not valid Python"),
        (b"def broken(:\n", "not valid Python"),
        (b"TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = load()\n", "not a constant"),
        (b"TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {9: {2: 1}, 9: {2: 2}}\n", "appears twice"),
        (b"A = B\nB = A\nTORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {9: {2: A}}\n", "nested too deeply"),
        (b"# coding: latin-1\nX = 1\n", "latin-1"),
        (b"X = '\xff'\n", "not UTF-8"),
        (b"", "is not assigned"),
        (deep.as_bytes(), "nested too deeply"),
        (&huge, "more than"),
    ];
    for (bytes, why) in cases {
        let it = Installation::new("0.5.15", GUARDED);
        it.write(UTILS, bytes);
        let report = it.check("h200");
        let finding = find(&report, SIZES_ID);
        assert_eq!((finding.status, report.exit_code()), (Status::CannotTell, 2), "{why}");
        let said = finding.cannot_tell.as_deref().unwrap();
        assert!(said.contains(why), "{said:?} does not say {why:?}");
    }
}

#[test]
fn a_file_outside_of_the_tree_is_not_read() {
    let it = Installation::new("0.5.15", GUARDED);
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("utils.py");
    std::fs::write(&target, SIZES).unwrap();
    std::fs::remove_file(it.path().join(UTILS)).unwrap();
    std::os::unix::fs::symlink(&target, it.path().join(UTILS)).unwrap();
    let report = it.check("h200");
    assert!(find(&report, SIZES_ID).cannot_tell.as_deref().unwrap().contains("symbolic link"));
}

#[test]
fn a_gate_that_means_something_else_cannot_be_told() {
    let it = Installation::new("0.5.15", GUARDED);
    it.write(COMMUNICATOR, GATE.replace("= is_sm90_supported()", "= anything()").as_bytes());
    let report = it.check("h200");
    let gate = find(&report, "sglang-fusion-gate-communicator");
    assert!(gate.cannot_tell.as_deref().unwrap().contains("no longer stands for"), "{gate:?}");
}

#[test]
fn every_record_is_whole() {
    let records = embedded();
    assert_eq!(records.len(), 12);
    for record in &records {
        for version in &record.read_in {
            let version = version.parse().unwrap();
            assert!(record.versions.matches(&version), "{}: {version} is outside of its own range", record.id);
        }
        let after = record.table.as_ref().and_then(|table| table.reached_after.clone());
        assert!(after.is_none_or(|id| records.iter().any(|other| other.id == id)), "{}", record.id);
    }
}

const JIT: &str = "\
def gen_trtllm_comm_module():
    flags = context.get_nvcc_flags_list(
        supported_major_versions=[9, 10]
    )
";

#[test]
fn a_kernel_that_is_not_built_for_the_card_is_behind_the_gate() {
    let it = Installation::new("0.5.9", UNGUARDED);
    let gate = |gpu: &str| find(&it.check(gpu), "sglang-fusion-gate-communicator").clone();
    assert!(gate("rtx-pro-6000").kernel.unwrap().contains("not in this folder"));
    it.write("flashinfer/jit/comm.py", JIT.as_bytes());
    let closed = gate("rtx-pro-6000");
    assert_eq!(closed.never[0].at, "flashinfer/jit/comm.py:3", "{closed:?}");
    assert!(closed.never[0].why.contains("9.x and 10.x only"), "{closed:?}");
    assert!(gate("h200").never.is_empty() && gate("h200").kernel.unwrap().contains("9.x and 10.x"));
    it.write("flashinfer/jit/comm.py", JIT.replace("[9, 10]", "[9, 10, 12]").as_bytes());
    assert!(gate("rtx-pro-6000").never.is_empty());
    // Another package in another shape says nothing against the place itself.
    for other in ["def gen_trtllm_comm_module(): pass\n", "broken(\n", "X = 1\n"] {
        it.write("flashinfer/jit/comm.py", other.as_bytes());
        let gate = gate("rtx-pro-6000");
        assert!(gate.status == Status::Missing && gate.kernel.unwrap().contains("read"), "{other}");
    }
}

#[test]
fn known_patches_say_what_becomes_of_them() {
    let report = Installation::new("0.5.9", UNGUARDED).check("rtx-pro-6000");
    let patches: Vec<_> = report.findings.iter().flat_map(|finding| &finding.known_patches).collect();
    assert_eq!(patches.len(), 3);
    assert!(patches.iter().all(|patch| patch.outcome.contains("the feature stays off")), "{patches:?}");
    let places: Vec<&str> = patches.iter().map(|patch| patch.at.as_str()).collect();
    assert_eq!(places, [&format!("{COMMUNICATOR}:6"), &format!("{SYMM}:11"), &format!("{SYMM}:11")]);
    // With multicast a row is worth a measurement.
    let release = Installation::new("0.5.9", UNGUARDED);
    let card = card("rtx-pro-6000").on(None, Some(true)).unwrap();
    let report = check(&release.release(), &card, &embedded()).unwrap();
    assert!(find(&report, SIZES_ID).known_patches[0].outcome.contains("measure it"));
}
