use capdb::assembly::Index;
use capdb::database::Database;
use capdb::load::{Loaded, TextFile};
use capdb::overlay;
use capdb::problem::{Problem, Severity};

use super::{Input, validate};

/// What an overlay may hold beyond that.
const EVERYTHING: &str = "\
schema: overlay/1
applies_to: h200
sources:
  table:
    kind: project
    title: Limits
    project: vllm
    version: v1
    path: limits.py
    url: nowhere.example
    date: \"2026-11-29\"
    note: Old
    superseded_by: table
allreduce:
  symmetric_memory:
    max_message: {2: 64MiB}
    evidence_for:
      max_message.2: {kind: guessed, source: table}
    readings: [{source: table, value: {2: 1MiB}, note: Other}]
  one_shot:
    world_sizes: [2, 4]
    max_message: {2: 2MiB}
    topologies: [nvswitch]
    dtypes: [bf16]
    requires: [multicast]
    evidence: {kind: upstream, source: table, kernel: one_shot, note: Old, nccl: \"2.28.3\"}
  preferred:
    - world_size: 2
      topology: nvswitch
      ladder: [{up_to: 2MiB, use: one_shot}]
      fused: [{up_to: 1MiB, use: two_shot}]
      evidence: {kind: guessed, source: table}
fusions:
  allreduce_residual_rmsnorm:
    support: native
    world_sizes: [2]
    dtypes: [bf16]
    topologies: [nvswitch]
    note: Slow
    evidence: {kind: guessed, source: table}
";

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

/// The errors of a validation.
fn validated(text: &str, context: &[TextFile]) -> Vec<String> {
    let report = validate(Input::loose(vec![file(text)], context.to_vec()));
    let errors = report.problems.into_iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.message).collect()
}

/// Why a start refuses an overlay.
fn laid(text: &str, index: &Index) -> Option<Problem> {
    let mut loaded = Loaded::read(file(text));
    overlay::read(&mut loaded, index).err().and_then(|problems| problems.into_iter().next())
}

/// What somebody may write instead of a word.
const OTHERS: &[&str] = &[
    "1",
    "guessed",
    "4MB",
    "0",
    "-1",
    "",
    "[]",
    "{}",
    "1.5",
    "2.0",
    "\"\"",
    "9.0+",
    "inherited",
    "upstream",
    "true",
    "nowhere",
    "02",
    "+2",
    "99999999999",
    "\"2026-02-30\"",
];

/// Each word of a text, with what may stand in its place.
fn changed_words(text: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let separates = |letter: char| " {}[],:\"\n".contains(letter);
    let mut at = 0;
    for word in text.split(separates) {
        texts.extend(OTHERS.iter().map(|other| format!("{}{other}{}", &text[..at], &text[at + word.len()..])));
        at += word.len() + 1;
    }
    texts
}

/// A text without one of its lines, with one of them twice, and with its second ladder.
fn changed_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let without = |index: usize| [&lines[..index], &lines[index + 1..]].concat().join("\n");
    let twice = |index: usize| [&lines[..=index], &lines[index..]].concat().join("\n");
    let ladder = lines.iter().position(|line| line.contains("- world_size")).expect("it has a ladder");
    let fusions = lines.iter().position(|line| *line == "fusions:").expect("its ladders end");
    let second = [&lines[..fusions], &lines[ladder..]].concat().join("\n");
    (0..lines.len()).flat_map(|index| [without(index), twice(index)]).chain([second]).collect()
}

/// A start lays overlays over the database without a validation before it.
#[test]
fn what_a_validation_refuses_is_never_laid_over_the_database() {
    let (context, database) = (context(), Database::embedded());
    let (mut refused, mut missed) = (0, Vec::new());
    for whole in [OVERLAY, EVERYTHING] {
        assert_eq!((validated(whole, &context), laid(whole, database.index())), (Vec::new(), None));
        for text in changed_words(whole).into_iter().chain(changed_lines(whole)).filter(|text| text != whole) {
            match laid(&text, database.index()) {
                Some(_) => refused += 1,
                None => missed.extend(validated(&text, &context)),
            }
        }
    }
    missed.sort();
    missed.dedup();
    assert!(refused > 1500, "only {refused} changes were refused");
    assert!(missed.is_empty(), "laid over the database all the same:\n{}", missed.join("\n"));
}

/// Where the form is right, both say the same of what is wrong.
#[test]
fn a_validation_says_what_a_start_says() {
    let (context, database) = (context(), Database::embedded());
    let (mut compared, mut others) = (0, Vec::new());
    for text in changed_words(EVERYTHING).iter().step_by(7).chain(&changed_lines(EVERYTHING)) {
        let Some(said) = laid(text, database.index()).filter(|said| said.code != "wrong-form") else { continue };
        // Without the word for an overlay a validation takes it for something else.
        if said.code.starts_with("schema") {
            continue;
        }
        let all = validated(text, &context);
        compared += 1;
        if !all.contains(&said.message) {
            others.push(format!("{} [{}], but: {}", said.message, said.code, all.join("; ")));
        }
    }
    others.sort();
    others.dedup();
    assert!(compared > 60, "only {compared} were compared");
    assert!(others.is_empty(), "{}", others.join("\n"));
}
