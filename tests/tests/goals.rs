//! `tests/gpu/goals.py`, which judges logs of a GPU: here on logs as they were on one and two H200, and on worse ones.

use std::fs;
use std::path::Path;
use std::process::Command;

const STEPS: &str = "\
1 x 1 rows, context 512, back to back: 3.4963 ms a step, 4312 GB/s of 15.076 GB, 1.000 x
1 x 8 rows, context 512, back to back: 3.7705 ms a step, 3998 GB/s of 15.076 GB, 1.078 x
1 x 1 rows, context 512, waiting after each: 3.5072 ms a step, 4299 GB/s of 15.076 GB, 1.000 x
1 x 8 rows, context 512, waiting after each: 3.7876 ms a step, 3980 GB/s of 15.076 GB, 1.080 x
";

/// Exit code and table of a folder with these logs.
fn judged(logs: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in logs {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/goals.py");
    let output = Command::new("python3").arg(script).arg(folder.path()).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// The cells of the row that begins with `what`.
fn row<'a>(table: &'a str, what: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.starts_with(&format!("| {what} |")));
    line.unwrap_or_else(|| panic!("no row {what} in\n{table}"))
        .trim_matches(['|', ' '])
        .split('|')
        .map(str::trim)
        .collect()
}

#[test]
fn a_met_goal_is_met_and_a_missed_one_ends_with_1() {
    let read = ("read.log", "read 4664.0 GB/s\n");
    let (code, table) = judged(&[read, ("speed-8b.log", STEPS)]);
    assert_eq!(code, Some(0), "{table}");
    // 15.076 GB in 3.4963 ms are 4,312 GB/s.
    assert_eq!(
        row(&table, "8B, batch 1: share of the read rate")[1..],
        ["3.496 ms, 286 tok/s, 0.925", "at least 0.88, stretch 0.93", "met, stretch missed"]
    );
    assert_eq!(row(&table, "8B, verify 8 tokens over a decode step")[3], "met");
    assert_eq!(row(&table, "8B, verify 4 tokens over a decode step")[3], "not measured: speed-8b.log lacks it");

    let slower = STEPS.replace("3.7876", "3.9000");
    let (code, table) = judged(&[read, ("speed-8b.log", &slower)]);
    assert_eq!(code, Some(1));
    // The worse of both ways to time counts: 3.9000 over 3.5072.
    assert_eq!(
        row(&table, "8B, verify 8 tokens over a decode step")[1..],
        ["3.771 ms, 1.112 x", "at most 1.08", "**missed** by 3.0 %"]
    );
}

#[test]
fn ranks_are_told_apart_and_percentages_taken() {
    let ranks = "\
2 ranks, the plan's choice: 1 x 1 rows, context 512, back to back: 2.2109 ms a step, 6819 GB/s of 15.076 GB, 1.000 x
2 ranks, nccl: 1 x 1 rows, context 512, back to back: 2.7914 ms a step, 5401 GB/s of 15.076 GB, 1.000 x
";
    let eagle = "Break-even: 1.313 tokens per verify; the plan predicted 1.132, -13.8 %\n";
    let (code, table) = judged(&[("ranks-8b.log", ranks), ("eagle-ranks.log", eagle)]);
    assert_eq!(code, Some(1), "{table}");
    assert_eq!(row(&table, "8B on two GPUs, tok/s")[1..], ["452", "at least 440, stretch 490", "met, stretch missed"]);
    assert_eq!(row(&table, "8B on two GPUs, NCCL's step over the plan's")[1], "1.26 x");
    let difference = row(&table, "8B on two GPUs, break-even, difference in %");
    assert_eq!(difference[1], "1.313 tokens per verify, predicted 1.132: 13.8 %");
    assert_eq!(difference[3], "**missed** by 37.9 %");
}

#[test]
fn prefill_counts_the_products_of_the_layers_alone() {
    let logs = [
        ("prefill.log", "Median first token (ms):                53.80\n"),
        ("matmul.log", "1.395 ms, 788.0 TFLOP/s\n"),
    ];
    let (_, table) = judged(&logs);
    // 2 operations x 32 layers x (4096 x 10240 + 3 x 4096 x 14336) weights x 2048 tokens.
    assert_eq!(row(&table, "8B, prefill of 2,048 tokens over a cuBLAS product")[1], "53.8 ms, 531 TFLOP/s, 0.67");
}

#[test]
fn nothing_measured_is_no_success() {
    let (code, table) = judged(&[("speed-8b.log", "FAILED: no GPU\n")]);
    assert_eq!(code, Some(2));
    assert_eq!(row(&table, "8B, batch 1: share of the read rate")[3], "not measured: speed-8b.log lacks it");
}
