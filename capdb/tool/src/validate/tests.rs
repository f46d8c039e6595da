use capdb::database::Database;
use capdb::load::TextFile;

use super::{Input, validate};

/// As `archway tune` writes one.
const OVERLAY: &str = "\
schema: overlay/1
applies_to: h200
fingerprint:
  gpu: NVIDIA H200
  topology_2: nvswitch
sources:
  site-tune:
    kind: measurement
    title: archway tune on 2x NVIDIA H200
    gpu: 2x NVIDIA H200
    driver: \"580.159.04\"
    nccl: \"2.28.3\"
    date: \"2026-11-29\"
allreduce:
  preferred:
    - world_size: 2
      topology: nvswitch
      dtype: bf16
      ladder: [{up_to: 2MiB, use: one_shot}, {up_to: 128MiB, use: two_shot}]
      times: [{bytes: 4KiB, nanoseconds: 2240}, {bytes: 16KiB, nanoseconds: 2420}]
      evidence: {kind: measured, source: site-tune, kernel: one_shot, driver: \"580.159.04\", date: \"2026-11-29\"}
fusions:
  allreduce_residual_rmsnorm:
    support: native
    max_message: {2: 896KiB}
    evidence: {kind: measured, source: site-tune, kernel: one_shot, driver: \"580.159.04\", date: \"2026-11-29\"}
";

fn file(text: &str) -> TextFile {
    TextFile { path: "site.yaml".to_owned(), relative: "site.yaml".to_owned(), bytes: text.as_bytes().to_vec() }
}

/// The database as far as the overlay's record needs it: hundreds of validations of all of it take minutes.
fn context() -> Vec<TextFile> {
    let needed = |file: &TextFile| match file.relative.split_once('/') {
        Some(("gpu", name)) => name == "h200.yaml",
        Some(("arch", name)) => name == "sm90.yaml",
        Some(_) => false,
        None => true,
    };
    Database::embedded_files().into_iter().filter(needed).collect()
}

/// The first error of a validation, and whether a start refuses the file.
fn judged(text: &str, context: &[TextFile]) -> (Option<String>, bool) {
    let report = validate(Input::loose(vec![file(text)], context.to_vec()));
    let error = report.problems.iter().find(|problem| problem.severity == capdb::problem::Severity::Error);
    (error.map(|problem| problem.message.clone()), Database::embedded().with_overlay(file(text)).is_err())
}

/// Each word of the text, with what may stand in its place.
fn changed_words() -> Vec<String> {
    let mut texts = Vec::new();
    let separates = |letter: char| " {}[],:\"\n".contains(letter);
    let mut at = 0;
    for word in OVERLAY.split(separates) {
        for other in ["1", "guessed", "4MB"] {
            texts.push(format!("{}{other}{}", &OVERLAY[..at], &OVERLAY[at + word.len()..]));
        }
        at += word.len() + 1;
    }
    texts
}

/// The text without one of its lines, and with one of them twice.
fn changed_lines() -> Vec<String> {
    let lines: Vec<&str> = OVERLAY.lines().collect();
    let without = |index: usize| [&lines[..index], &lines[index + 1..]].concat().join("\n");
    let twice = |index: usize| [&lines[..=index], &lines[index..]].concat().join("\n");
    let ladder = lines.iter().position(|line| line.contains("- world_size")).expect("it has a ladder");
    let second = [&lines[..ladder + 6], &lines[ladder..]].concat().join("\n");
    (0..lines.len()).flat_map(|index| [without(index), twice(index)]).chain([second]).collect()
}

/// A start lays overlays over the database without a validation before it.
#[test]
fn what_a_validation_refuses_is_never_laid_over_the_database() {
    let context = context();
    assert_eq!(judged(OVERLAY, &context), (None, false));
    let (mut refused, mut missed) = (0, Vec::new());
    for text in changed_words().into_iter().chain(changed_lines()).filter(|text| text != OVERLAY) {
        let (error, laid_refused) = judged(&text, &context);
        refused += usize::from(error.is_some());
        missed.extend(error.filter(|_| !laid_refused));
    }
    missed.sort();
    missed.dedup();
    assert!(refused > 150, "only {refused} changes were refused");
    assert!(missed.is_empty(), "laid over the database all the same:\n{}", missed.join("\n"));
}
