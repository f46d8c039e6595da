use super::*;
use crate::database::Database;
use crate::load::{Loaded, TextFile};

fn outcomes(text: &str) -> Vec<Outcome> {
    let file = TextFile {
        path: "cases/test.yaml".into(),
        relative: "cases/test.yaml".into(),
        bytes: text.as_bytes().to_vec(),
    };
    run(&Database::embedded(), &mut Loaded::read(file)).unwrap()
}

const CASE: &str = "schema: cases/1
cases:
  - id: own-numbers
    why: a case can stand on its own numbers
    given:
      arch: sm999
      world_size: 4
      topology: pcie_p2p
      message: {tokens: 8, hidden: 7168}
      record: {allreduce: {one_shot: {max_message: {4: 112KiB}, evidence: {kind: measured, source: here}}}}
    expect: {verdict: selected, allreduce: one_shot}
";

#[test]
fn a_case_passes_or_says_what_differs() {
    assert_eq!(
        outcomes(CASE),
        [Outcome { id: "own-numbers".into(), path: "cases/test.yaml".into(), line: 3, failures: vec![] }]
    );
    let failed = outcomes(
        &CASE
            .replace("112KiB", "111KiB")
            .replace("allreduce: one_shot", "allreduce: one_shot, reasons: [no_multicast], nearest: nccl"),
    );
    let got = "got [arch_entry_missing, message_over_limit, fusion_not_listed]";
    assert_eq!(
        failed[0].failures,
        [
            "verdict: expected selected, got fallback",
            "allreduce: expected one_shot, got nccl",
            &format!("reasons: expected no_multicast, {got}")
        ]
    );
}

#[test]
fn a_question_without_a_machine_is_an_error() {
    assert_eq!(
        outcomes(&CASE.replace("arch: sm999", "arch: sm90\n      gpu: h200"))[0].failures,
        [AskError::NoMachine.to_string()]
    );
}

#[test]
fn zero_and_quoted_zero_are_the_same_switch() {
    let with = |value: &str| {
        CASE.replace(
            "topology: pcie_p2p",
            &format!("topology: nvswitch\n      environment: {{NCCL_NVLS_ENABLE: {value}}}"),
        )
        .replace("expect: {verdict: selected, allreduce: one_shot}", "expect: {reasons: [disabled_by_environment]}")
        .replace("112KiB", "1KiB")
    };
    for value in ["0", "\"0\""] {
        assert_eq!(outcomes(&with(value))[0].failures, [] as [&str; 0], "{value}");
    }
    assert_ne!(outcomes(&with("1"))[0].failures, [] as [&str; 0]);
}
