//! Edits of every way to write a table or a gate down. Python reads the results back.

use capdb::record::{PatchKey, PatchRow, PatchTable};
use serde_json::{Value, json};

use super::installation::{Installation, SYMM, card, embedded};
use crate::patch::card::Row;
use crate::patch::edit::{insert, open, splice};
use crate::patch::gate;
use crate::patch::literal::Literal;
use crate::patch::python::Source;

fn shape(row: PatchRow) -> PatchTable {
    PatchTable {
        file: "table.py".to_owned(),
        name: "T".to_owned(),
        class: None,
        key: PatchKey::Major,
        row,
        lookup: "table.py".to_owned(),
        reached_after: None,
        default_means: None,
        default_suffices: false,
        database: None,
        other_kernel: None,
    }
}

fn added(text: &str, row: PatchRow, key: &Literal, values: &[(u32, u64)]) -> String {
    let source = Source::parse("table.py", text.as_bytes().to_vec()).unwrap();
    let values: Row = values.iter().copied().collect();
    let pieces = insert(&source, &shape(row), key, &values, "remark").unwrap();
    let after = splice(text, pieces.clone());
    // Byte for byte the same outside of the pieces.
    let grown: usize = pieces.iter().map(|piece| piece.text.len()).sum();
    assert_eq!(after.len(), text.len() + grown, "{after}");
    after
}

/// The value of `T` in every text, as Python has it.
fn as_python(texts: &[String]) -> Vec<Value> {
    let it = Installation::new("0.5.15", "");
    for (index, text) in texts.iter().enumerate() {
        it.write(&format!("v{index}.py"), text.as_bytes());
    }
    let code = format!(
        "import json, runpy; print(json.dumps([runpy.run_path(f'v{{i}}.py')['T'] for i in range({})]))",
        texts.len()
    );
    serde_json::from_str(&it.python(&code)).unwrap()
}

#[test]
fn a_row_of_sizes_fits_every_way_to_write_the_table() {
    let before = json!({"9": {"2": 64 << 20}});
    let forms = [
        "MiB = 1024 * 1024\nT = {\n    9: {2: 64 * MiB},\n}\n",
        "MiB = 1024 * 1024\nT = {\n    9: {2: 64 * MiB}\n}\n",
        "MiB = 1024 * 1024\nT = {\n    9: {\n        2: 64 * MiB,  # 64 MB\n    },  # Hopper\n}\n",
        "MiB = 1024 * 1024\nT = {\n    9: {2: 64 * MiB}  # no comma\n}\n",
        "MiB = 1024 * 1024\nT = {\n    9: {2: 64 * MiB}  # no comma\n    ,\n}\n",
        "MiB = 1024 * 1024\nT = {\n    9: {2: 64 * MiB}}\n",
        "MiB = 1024 * 1024\nT = {9: {2: 64 * MiB}}\n",
        "MiB = 1024 * 1024\nT = {9: {2: 64 * MiB},}\n",
        "T: dict = {\n    9: {2: 67108864},\n}\nMiB = 1000\n",
        "MiB = 1024 * 1024\r\nT = {\r\n    9: {2: 64 * MiB},\r\n}\r\n",
        "\u{feff}MiB = 1 << 20\nT = {\n\t9: {2: 64 * MiB},\n}",
        "T = {\n    9: {2: 64 * 1024 * 1024},\n    # nothing for others\n}\n",
        "if True:\n    MiB = 1 << 20\n    T = {\n        9: {2: 64 * MiB},\n    }\n",
    ];
    let edited: Vec<String> = forms
        .iter()
        .map(|text| added(text, PatchRow::Bytes, &Literal::Integer(12), &[(2, 1 << 20), (8, 1536)]))
        .collect();
    for (index, value) in as_python(&edited).into_iter().enumerate() {
        assert_eq!(value, json!({"9": before["9"], "12": {"2": 1 << 20, "8": 1536}}), "{}", edited[index]);
    }
    assert!(edited[0].contains("\n    12: {2: 1 * MiB, 8: 1536},  # remark\n}"), "{}", edited[0]);
    assert!(edited[8].contains("12: {2: 1048576, 8: 1536},"), "{}", edited[8]);
    assert!(edited[9].matches("\r\n").count() == 5 && !edited[9].replace("\r\n", "").contains('\n'), "{:?}", edited[9]);
}

#[test]
fn other_rows_and_keys_are_written_as_their_neighbours_are() {
    let lists = "T = {\"9.0\": [4, 6], '10.0': [6]}\n";
    let tuples = "T = {\n    9: (4, 6),\n}\n";
    let mebibytes = "T = {\n    90: {8: 0.5},\n}\n";
    let edited = [
        added(lists, PatchRow::WorldSizes, &Literal::Text("12.0".to_owned()), &[]),
        added(tuples, PatchRow::WorldSizes, &Literal::Integer(10), &[(8, 0)]),
        added(mebibytes, PatchRow::Mebibytes, &Literal::Integer(120), &[(2, 32 << 10), (4, 64 << 20), (8, 1536)]),
    ];
    assert!(edited[0].contains(", '12.0': []}"), "{}", edited[0]);
    assert!(edited[1].contains("10: (8,),"), "{}", edited[1]);
    let values = as_python(&edited);
    assert_eq!(values[1], json!({"9": [4, 6], "10": [8]}));
    assert_eq!(values[2]["120"], json!({"2": 0.03125, "4": 64, "8": 0.00146484375}));
}

#[test]
fn a_table_that_is_not_written_out_is_not_edited() {
    for (text, why) in [
        ("T = {}\n", "is empty"),
        ("A = {9: {2: 1}}\nT = A\n", "not written out"),
        ("T = dict()\n", "not a constant"),
        ("T = {9: {2: 1}}\nT = {9: {2: 2}}\n", "more than once"),
    ] {
        let source = Source::parse("table.py", text.as_bytes().to_vec()).unwrap();
        let error = insert(&source, &shape(PatchRow::Bytes), &Literal::Integer(12), &Row::from([(2, 1)]), "");
        let said = error.unwrap_err().to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
    let sets = Source::parse("table.py", b"T = {9: {4, 6}}\n".to_vec()).unwrap();
    let error = insert(&sets, &shape(PatchRow::WorldSizes), &Literal::Integer(12), &Row::new(), "").unwrap_err();
    assert!(error.to_string().contains("a row like this set"), "{error}");
}

const CALLS: &str = "\
def enable_allreduce_rms_fusion(cfg):
    if current_platform.is_rocm() or cfg.off:
        return False
    return cfg.ranks > 1 and (
        current_platform.is_device_capability_family(100)
        or current_platform.is_device_capability(90)
    )
";

#[test]
fn a_gate_of_calls_gets_one_more_call() {
    let records = embedded();
    let record = records.iter().find(|record| record.id == "vllm-fusion-gate").unwrap();
    let shape = record.gate.as_ref().unwrap();
    let one_line = CALLS.replace("\n        or ", " or ");
    for (text, wanted) in [
        (CALLS, "(90)\n        or current_platform.is_device_capability(120)\n    )\n"),
        (&one_line, "(90) or current_platform.is_device_capability(120)\n    )\n"),
    ] {
        let source = Source::parse("vllm.py", text.as_bytes().to_vec()).unwrap();
        let read = gate::read(&source, None, shape).unwrap();
        let passing: Vec<String> = read.passing.iter().map(|(pass, _)| pass.to_string()).collect();
        assert_eq!(passing, ["10.x", "9.0"]);
        let after = splice(text, open(&source, None, shape, &read, &card("rtx-pro-6000")).unwrap());
        assert!(after.ends_with(wanted), "{after}");
        let edited = Source::parse("vllm.py", after.into_bytes()).unwrap();
        let read = gate::read(&edited, None, shape).unwrap();
        assert!(read.passing.iter().any(|(pass, _)| pass.lets_through(&card("sm120"))));
        assert!(!read.passing.iter().any(|(pass, _)| pass.lets_through(&card("sm121"))));
    }
    for broken in [
        CALLS.replace("(90)", "(x)"),
        CALLS.replace("enable_allreduce", "other"),
        CALLS.replace("or current", "and current"),
    ] {
        let source = Source::parse("vllm.py", broken.into_bytes()).unwrap();
        assert!(gate::read(&source, None, shape).is_err());
    }
}

#[test]
fn texts_that_are_not_touched_stay() {
    assert_eq!(splice("ab", Vec::new()), "ab");
    let it = Installation::new("0.5.15", "x = 1\n");
    assert_eq!(it.text(SYMM), "x = 1\n");
}
