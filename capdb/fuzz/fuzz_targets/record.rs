#![no_main]

//! One file through everything that reads it: reader, schema, types, lints and every renderer.

use std::path::Path;
use std::sync::OnceLock;

use capdb::load::TextFile;
use capdb_tool::diagnostics::{Format, render};
use capdb_tool::validate::{Input, folder_files, validate};

/// A sound database that the input stands beside.
fn context() -> Vec<TextFile> {
    static FILES: OnceLock<Vec<TextFile>> = OnceLock::new();
    let read = || {
        folder_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tool/tests/fixture"))
            .expect("the fixture is there")
    };
    FILES.get_or_init(read).clone()
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let file = TextFile { path: "input.yaml".into(), relative: "input.yaml".into(), bytes: input.to_vec() };
    let report = validate(Input::loose(vec![file], context()));
    let wrong = report.problems.iter().find(|problem| problem.code == "wrong-form");
    assert!(wrong.is_none(), "the schema accepts what the types refuse: {wrong:?}");
    for format in [Format::Full, Format::Concise, Format::Json, Format::Github] {
        let _text = render(&report.problems, &report.sources, format, false);
    }
});
