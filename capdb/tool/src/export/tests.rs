use std::path::Path;

use super::*;
use crate::validate::folder_files;

fn fixture() -> Database {
    Database::from_files(folder_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture")).unwrap()).unwrap()
}

/// The text is Python: its parser finds no error in it.
fn assert_python(text: &str) {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).unwrap();
    let tree = parser.parse(text, None).unwrap();
    assert!(!tree.root_node().has_error(), "{text}");
}

#[test]
fn vllm_tables_are_keyed_by_the_exact_capability() {
    let text = vllm(&fixture()).unwrap();
    assert_python(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn sglang_rows_hold_what_every_architecture_of_a_major_allows() {
    let text = sglang(&fixture()).unwrap();
    assert_python(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn the_real_data_exports_in_every_form() {
    let data = Database::embedded();
    assert_python(&vllm(&data).unwrap());
    assert_python(&sglang(&data).unwrap());
    let document = json(&data).unwrap();
    assert_eq!(document["archs"].as_object().unwrap().len(), data.index().archs.len());
    assert!(document["gpus"]["h200"]["origins"].as_object().unwrap().len() > 20);
}
