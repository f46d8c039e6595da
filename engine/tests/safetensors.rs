//! Safetensors checkpoints, whole and damaged. Files are written by the `safetensors` crate.

use std::collections::HashMap;
use std::path::Path;

use engine::weights::{SafetensorsWeights, WeightError, WeightSource, WeightType, read_file};
use safetensors::tensor::{Dtype, TensorView, serialize};
use tempfile::TempDir;

fn bytes(tensors: &[(&str, Dtype, Vec<usize>, &[u8])]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        (*name, TensorView::new(*dtype, shape.clone(), data).expect("fixture is consistent"))
    });
    serialize(views.collect::<Vec<_>>(), None::<HashMap<String, String>>).expect("can be serialised")
}

fn sample() -> Vec<u8> {
    bytes(&[
        ("a.weight", Dtype::F32, vec![2, 3], &[7; 24]),
        ("b.weight", Dtype::BF16, vec![4], &[8; 8]),
        ("c.weight", Dtype::F8_E4M3, vec![5], &[9; 5]),
    ])
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("can make a folder");
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).expect("can write");
    }
    folder
}

fn open(folder: &Path) -> Result<SafetensorsWeights, WeightError> {
    SafetensorsWeights::open_folder(folder, read_file)
}

/// The error for a single damaged file.
fn error_of(content: &[u8]) -> String {
    let folder = folder(&[("model.safetensors", content)]);
    open(folder.path()).err().expect("must be refused").to_string()
}

/// A file with this header text and so many bytes of data.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn reads_a_single_file() {
    let folder = folder(&[("model.safetensors", &sample())]);
    let weights = open(folder.path()).expect("is whole");
    let mut names = weights.names();
    names.sort();
    assert_eq!(names, ["a.weight", "b.weight", "c.weight"]);
    let tensor = weights.tensor("a.weight", &[2, 3]).expect("exists");
    assert_eq!((tensor.kind, &*tensor.bytes), (WeightType::F32, &[7_u8; 24][..]));
    assert_eq!(weights.tensor("b.weight", &[4]).expect("exists").kind, WeightType::Bf16);
    let error = weights.tensor("c.weight", &[5]).expect_err("cannot be read").to_string();
    assert!(error.contains("model.safetensors: tensor `c.weight` has type F8_E4M3"), "{error}");
}

#[test]
fn a_wrong_shape_and_a_missing_name_are_said() {
    let folder = folder(&[("model.safetensors", &sample())]);
    let weights = open(folder.path()).expect("is whole");
    let error = weights.tensor("a.weight", &[3, 2]).expect_err("other shape").to_string();
    assert!(
        error.ends_with("model.safetensors: tensor `a.weight` has shape [2, 3], the model needs [3, 2]"),
        "{error}"
    );
    let error = weights.tensor("d.weight", &[1]).expect_err("no such tensor").to_string();
    let expected = "model.safetensors: tensor `d.weight` is missing; the file has a.weight, b.weight, c.weight";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn reads_shards_and_strips_the_nested_prefix() {
    let first = bytes(&[("language_model.model.a", Dtype::F16, vec![2], &[1; 4])]);
    let second = bytes(&[("b", Dtype::I64, vec![1], &[2; 8]), ("unlisted", Dtype::U8, vec![1], &[0])]);
    let index = r#"{"metadata": {"total_size": 12}, "weight_map": {"language_model.model.a": "one.safetensors", "b": "two.safetensors"}}"#;
    let folder = folder(&[
        ("one.safetensors", &first),
        ("two.safetensors", &second),
        ("model.safetensors.index.json", index.as_bytes()),
    ]);
    let weights = open(folder.path()).expect("is whole");
    assert_eq!(weights.names(), ["model.a", "b"]);
    assert_eq!(&*weights.tensor("model.a", &[2]).expect("exists").bytes, [1; 4]);
    assert_eq!(&*weights.tensor("b", &[1]).expect("exists").bytes, [2; 8]);
}

#[test]
fn a_wrong_index_is_said() {
    let shard = bytes(&[("b", Dtype::I64, vec![1], &[2; 8])]);
    let cases = [
        (r#"{"weight_map": {"a": "one.safetensors"}}"#, "one.safetensors: tensor `a` is missing"),
        (r#"{"weight_map": {"b": "gone.safetensors"}}"#, "gone.safetensors: cannot be opened"),
        (r#"{"weight_map": {"b": "../one.safetensors"}}"#, "which is not a name of a file in this folder"),
        (r#"{"weight_map": {"b": ".."}}"#, "which is not a name of a file in this folder"),
        (r#"{"weight_map": ["b"]}"#, "is not an index of shards"),
        (r#"{"weight_map": {"b": "gone.safetensors", "b": "one.safetensors"}}"#, "key `b` appears twice"),
    ];
    for (index, message) in cases {
        let folder = folder(&[("one.safetensors", &shard), ("model.safetensors.index.json", index.as_bytes())]);
        let error = open(folder.path()).err().expect("must be refused").to_string();
        assert!(error.contains(message), "{index}: {error}");
    }
}

#[test]
fn a_folder_without_weights_is_said() {
    let error = open(folder(&[("config.json", b"{}")]).path()).err().expect("must be refused").to_string();
    assert!(error.contains("has no weights: expected `model.safetensors`"), "{error}");
    let two = folder(&[("x.safetensors", &sample()), ("y.safetensors", &sample())]);
    let error = open(two.path()).err().expect("must be refused").to_string();
    assert!(error.contains("has 2 safetensors files but no `model.safetensors.index.json`"), "{error}");
}

#[test]
fn truncation_is_said() {
    let whole = sample();
    assert!(error_of(&[]).contains("has 0 bytes; a safetensors file starts with 8 bytes"));
    assert!(error_of(&whole[..20]).contains("but only 12 bytes follow: the file is truncated"));
    let error = error_of(&whole[..whole.len() - 1]);
    assert!(error.contains("but the file holds 36 bytes of data: it is truncated"), "{error}");
    let error = error_of(&[whole.as_slice(), &[0]].concat());
    assert!(error.contains("the last 1 bytes belong to no tensor"), "{error}");
}

#[test]
fn wrong_headers_are_said() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let entry = r#"{"dtype":"U8","shape":[4],"data_offsets":[0,4]}"#;
    let cases = [
        (one("F32", "[1]", "[4,0]"), 4, "tensor `x` has data_offsets [4, 0], which end before they start"),
        (one("F32", "[2]", "[0,4]"), 4, "tensor `x` has data_offsets [0, 4], 4 bytes, but F32 of shape [2] takes 8"),
        (one("F32", "[1]", "[0,4]"), 2, "tensor `x` ends at data offset 4, but the file holds 2 bytes"),
        (one("F33", "[1]", "[0,4]"), 4, "tensor `x` has the unknown type \"F33\""),
        (one("U8", "[4294967296,4294967296,2]", "[0,4]"), 4, "whose size overflows"),
        (one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "has 9 dimensions; at most 8"),
        (one("U8", "[-1]", "[0,1]"), 1, "tensor `x`: invalid value: integer `-1`"),
        (one("U8", "[2]", "[1,3]"), 3, "1 bytes before tensor `x` belong to no tensor"),
        (format!(r#"{{"x":{entry},"y":{entry}}}"#), 4, "tensor `y` starts at data offset 0 inside `x`"),
        (format!(r#"{{"x":{entry},"x":{entry}}}"#), 4, "tensor `x` is listed twice"),
        ("{\"x\": ".to_owned(), 0, "the header (bytes 8 to 14) is not valid: "),
    ];
    for (header, data, message) in cases {
        let error = error_of(&with_header(&header, data));
        assert!(error.contains("model.safetensors: ") && error.contains(message), "{header}: {error}");
    }
    let huge = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    assert!(error_of(&huge).contains("the header length at offset 0 is 18446744073709551615, but only 2 bytes follow"));
    let not_text = [&2_u64.to_le_bytes()[..], &[0xff, 0xfe]].concat();
    assert!(error_of(&not_text).contains("is not valid"));
}
