//! Scripts that measure this program.

use std::path::Path;
use std::process::{Command, Output};

/// Measures the server's memory for two seconds, with nothing there that an earlier script has left.
fn memory(program: &str) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bench/memory.sh");
    let mut script = Command::new(script);
    script.arg("2").env("ARCHWAY", program).env("CLIENTS", empty.path().join("clients")).output().unwrap()
}

#[test]
fn a_measurement_is_a_row_and_a_verdict() {
    let output = memory(env!("CARGO_BIN_EXE_archway"));
    let row = String::from_utf8_lossy(&output.stdout);
    assert!(row.starts_with("| growth of resident memory in 2 s of load ("), "{output:?}");
    let verdict = if output.status.code() == Some(0) { "| met |" } else { "| missed |" };
    assert!(row.trim_end().ends_with(verdict) && output.status.code() < Some(2), "{output:?}");
}

#[test]
fn what_could_not_be_measured_is_no_missed_goal() {
    let output = memory("/nowhere/archway");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
}
