//! What is not edited, and why.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use capdb::record::PatchProject;

use super::applied::SIZES_ID;
use super::installation::{COMMUNICATOR, GUARDED, Installation, SYMM, UNGUARDED, UTILS};
use crate::patch::{Options, Plan, PlanError, Release, ReleaseError, Verdict, WriteError, carry_out, would_be_refused};

fn why(plan: &Plan, id: &str) -> String {
    let step = plan.steps.iter().find(|step| step.id == id).unwrap();
    step.reasons.iter().map(|reason| format!("{} {}", reason.why, reason.at.as_deref().unwrap_or(""))).collect()
}

#[test]
fn a_row_that_takes_no_effect_and_a_guess_are_refused_each_with_its_reason() {
    let it = Installation::new("0.5.9", UNGUARDED);
    let plan = it.plan("rtx-pro-6000", &Options::default()).unwrap();
    assert_eq!((plan.exit_code(), plan.files.len()), (1, 0));
    let said = why(&plan, SIZES_ID);
    for part in [
        "guessed",
        "arch/sm120.yaml:",
        "--allow-guessed",
        "it would not help",
        "has no multicast",
        &format!("{SYMM}:11"),
        "--force",
    ] {
        assert!(said.contains(part), "{said} does not say {part}");
    }
    let gate = plan.steps.iter().find(|step| step.id == "sglang-fusion-gate-communicator").unwrap();
    assert_eq!(gate.verdict, Verdict::LeftAlone, "a gate is opened only if it is named");
    for options in [
        Options { force: true, ..Options::default() },
        Options { allow_guessed: true, ..Options::default() },
        Options { only: vec![SIZES_ID.to_owned()], ..Options::default() },
    ] {
        assert_eq!(it.plan("rtx-pro-6000", &options).unwrap().files.len(), 0, "{options:?}");
    }
}

#[test]
fn a_mended_gap_is_not_mended_twice() {
    let it = Installation::new("0.5.15", GUARDED);
    carry_out(&it.release(), &it.plan("b200", &Options::default()).unwrap()).unwrap();
    let before = it.files();
    let again = it.plan("b200", &Options::default()).unwrap();
    assert_eq!((again.exit_code(), again.files.len()), (1, 0));
    assert!(why(&again, SIZES_ID).contains("10 is there"), "{}", why(&again, SIZES_ID));
    assert_eq!(it.files(), before);
}

#[test]
fn unknown_releases_shapes_and_places_are_not_guessed() {
    let old = Installation::new("0.4.0", GUARDED);
    assert!(matches!(old.plan("b200", &Options::default()), Err(PlanError::UnknownRelease { .. })));
    let it = Installation::new("0.5.15", GUARDED);
    let nobody = Options { only: vec!["nobody".to_owned()], ..Options::default() };
    assert!(matches!(it.plan("b200", &nobody), Err(PlanError::UnknownPlace { .. })));
    it.write(SYMM, GUARDED.replace("sizes is None", "not sizes").as_bytes());
    let plan = it.plan("b200", &Options::default()).unwrap();
    assert_eq!((plan.exit_code(), plan.files.len()), (2, 0), "{:?}", plan.steps);
    // A gate without a helper for the major is not a small edit.
    let gate = "sglang-fusion-gate-communicator".to_owned();
    let options = Options { only: vec![gate], force: true, allow_guessed: true };
    let error = Installation::new("0.5.15", GUARDED).plan("rtx-pro-6000", &options).unwrap_err();
    assert!(error.to_string().contains("is_sm120_supported"), "{error}");
    assert!(std::error::Error::source(&error).is_none(), "the message holds its cause, which would be printed twice");
}

#[test]
fn a_card_without_a_value_gets_none() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("a100", &Options { force: true, allow_guessed: true, ..Options::default() }).unwrap();
    let multimem = plan.steps.iter().find(|step| step.id == "sglang-multimem-world-sizes").unwrap();
    assert!(multimem.verdict != Verdict::LeftAlone, "{multimem:?}");
    assert!(!it.text(COMMUNICATOR).contains("sm80"));
}

#[test]
fn read_only_files_and_folders_are_left_alone() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("b200", &Options::default()).unwrap();
    let file = it.path().join(UTILS);
    let folder = file.parent().unwrap().to_path_buf();
    for (path, mode) in [(file, 0o444), (folder, 0o555)] {
        let old = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let before = it.files();
        let error = carry_out(&it.release(), &plan).unwrap_err();
        assert!(matches!(error, WriteError::NotWritable { .. }), "{error}");
        assert_eq!(it.files(), before, "not even a record");
        fs::set_permissions(&path, old).unwrap();
    }
    assert!(carry_out(&it.release(), &plan).unwrap().written);
}

#[test]
fn a_file_that_a_process_holds_open_is_left_alone() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("b200", &Options::default()).unwrap();
    let file = File::open(it.path().join(UTILS)).unwrap();
    let mut holder = Command::new("sleep").arg("60").stdin(file).spawn().unwrap();
    let before = it.files();
    let error = carry_out(&it.release(), &plan).unwrap_err();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let said = error.to_string();
    assert!(said.contains(&format!("process {}", holder.id())) && said.contains("open"), "{said}");
    assert_eq!(it.files(), before);
    let looked = would_be_refused(&it.release(), &plan).unwrap();
    assert!(looked.looked_at.is_some_and(|count| count > 0), "{looked:?}");
}

#[test]
fn a_file_that_changes_after_the_plan_is_left_alone() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("b200", &Options::default()).unwrap();
    it.write(UTILS, format!("{}\n# mine\n", it.text(UTILS)).as_bytes());
    let before = it.files();
    assert!(matches!(carry_out(&it.release(), &plan), Err(WriteError::ChangedMeanwhile(path)) if path == UTILS));
    let after = it.files();
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
    assert!(!after.keys().any(|path| path.ends_with("receipt.json")), "{:?}", after.keys());
}

#[test]
fn a_process_with_a_native_module_of_the_package_mapped_is_not_disturbed() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("b200", &Options::default()).unwrap();
    it.write("sglang/kernels.so", b"not really one");
    let code = "import mmap, time; file = open('sglang/kernels.so', 'rb'); held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); \
        file.close(); print('ready', flush=True); time.sleep(60)";
    let mut server = Command::new("python3")
        .args(["-c", code])
        .current_dir(it.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let before = it.files();
    let refused = carry_out(&it.release(), &plan);
    server.kill().unwrap();
    server.wait().unwrap();
    let said = refused.unwrap_err().to_string();
    assert!(said.contains(&format!("process {}", server.id())) && said.contains("kernels.so mapped"), "{said}");
    assert_eq!(it.files(), before);
    assert!(carry_out(&it.release(), &plan).unwrap().written, "the process is gone");
}

#[test]
fn two_at_a_time_are_one_too_many() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("b200", &Options::default()).unwrap();
    let folder = it.path().join(crate::patch::FOLDER);
    fs::create_dir(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let before = it.files();
    assert!(matches!(carry_out(&it.release(), &plan), Err(WriteError::Locked(_))));
    assert_eq!(it.files(), before);
    drop(lock);
    assert!(carry_out(&it.release(), &plan).unwrap().written);
}

/// Opening one to write waits for a reader, forever.
#[test]
fn a_pipe_in_the_place_of_the_lock_is_refused() {
    let it = Installation::new("0.5.15", GUARDED);
    let plan = it.plan("b200", &Options::default()).unwrap();
    let folder = it.path().join(crate::patch::FOLDER);
    fs::create_dir(&folder).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.join("lock")).status().unwrap().success());
    let said = carry_out(&it.release(), &plan).unwrap_err().to_string();
    assert!(said.contains("/lock: it is a pipe"), "{said}");
}

#[test]
fn what_fails_half_way_is_taken_back() {
    let it = Installation::new("0.5.15", GUARDED);
    let before = it.files();
    let mut plan = it.plan("b200", &Options::default()).unwrap();
    // The same file twice: after the first edit it is no longer what the second one was made for.
    plan.files = vec![plan.files[0].clone(), plan.files[0].clone()];
    assert!(matches!(carry_out(&it.release(), &plan), Err(WriteError::ChangedMeanwhile(_))));
    let after = it.files();
    let left: Vec<&String> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)), "{left:?}");
    assert!(!left.iter().any(|path| path.contains("receipt")), "{left:?}");
}

#[test]
fn a_version_file_that_is_none_hangs_nobody() {
    let it = Installation::new("0.5.15", GUARDED);
    let metadata = it.path().join("sglang-1.dist-info/METADATA");
    fs::remove_file(&metadata).unwrap();
    assert!(Command::new("mkfifo").arg(&metadata).status().unwrap().success());
    assert!(matches!(Release::find(PatchProject::Sglang, it.path()), Err(ReleaseError::NoVersion { .. })));
    fs::remove_file(&metadata).unwrap();
    fs::write(&metadata, vec![b'x'; 5 << 20]).unwrap();
    assert!(matches!(Release::find(PatchProject::Sglang, it.path()), Err(ReleaseError::NoVersion { .. })));
}
