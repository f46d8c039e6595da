#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use capdb::load::TextFile;
use capdb_tool::diagnostics::{Format, render};
use capdb_tool::migrate::lift;
use capdb_tool::validate::{Input, folder_files, validate};

/// The small sound database that each input is laid over.
static CONTEXT: LazyLock<Vec<TextFile>> = LazyLock::new(|| {
    folder_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tool/tests/fixture")).expect("the fixture lies beside")
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let file = TextFile { path: "input.yaml".into(), relative: "input.yaml".into(), bytes: input.to_vec() };
    let _ = lift(&file);
    let report = validate(Input::loose(vec![file], CONTEXT.clone()));
    // What the schema accepts, the types accept.
    assert!(report.problems.iter().all(|problem| problem.code != "wrong-form"));
    for format in [Format::Full, Format::Concise, Format::Json, Format::Github] {
        render(&report.problems, &report.sources, format, false);
    }
});
