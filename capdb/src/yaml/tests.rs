use serde_json::json;

use super::*;

fn codes(text: &str) -> Vec<&'static str> {
    read("test.yaml", text.as_bytes()).problems.iter().map(|problem| problem.code).collect()
}

#[test]
fn reads_what_both_versions_of_yaml_agree_on() {
    let text = "schema: arch/1\nquoted: \"12.0\"\nnumber: 12.5\nhex: 0x1F\nlist: [a, 1, null, true]\nsizes: {2: 64MiB, 4: 32MiB}\nempty:\nword: nope\ntext: |\n  two\n  lines\n";
    let document = read("test.yaml", text.as_bytes());
    assert_eq!(document.problems, []);
    let root = document.root.unwrap();
    assert_eq!(
        root.to_json(),
        json!({"schema": "arch/1", "quoted": "12.0", "number": 12.5, "hex": 31, "list": ["a", 1, null, true], "sizes": {"2": "64MiB", "4": "32MiB"}, "empty": null, "word": "nope", "text": "two\nlines\n"})
    );
    let span = root.pointer("/sizes/4").unwrap().span.clone();
    assert_eq!(&text[span], "32MiB");
    assert_eq!(&text[root.key_span("/sizes/4").unwrap()], "4");
    assert_eq!(&text[root.pointer("/quoted").unwrap().span.clone()], "\"12.0\"");
}

#[test]
fn refuses_scalars_that_the_two_versions_read_differently() {
    for scalar in [
        "no",
        "NO",
        "on",
        "Off",
        "y",
        "0755",
        "0o17",
        "0b101",
        "1_000",
        "1_000.5",
        "12:30",
        "190:20:30.15",
        "2026-11-29",
        "1e3",
        "1.5e3",
        "-0x1f",
        "=",
    ] {
        assert_eq!(codes(&format!("key: {scalar}\n")), ["ambiguous-scalar"], "{scalar}");
        assert_eq!(codes(&format!("key: \"{scalar}\"\n")), [] as [&str; 0], "{scalar} quoted");
    }
    for scalar in
        ["1.5e+3", "-7", "+7", "0", "0.5", ".5", "sm_120a", "12.8.1", "580.65.06", "a:b", "north", "1KiB", "~"]
    {
        assert_eq!(codes(&format!("key: {scalar}\n")), [] as [&str; 0], "{scalar}");
    }
}

#[test]
fn names_each_construct_that_the_database_does_without() {
    for (text, code) in [
        ("a: &x 1\n", "anchor"),
        ("a: *x\n", "anchor"),
        ("<<: {b: 1}\n", "merge-key"),
        ("a: !!str 1\n", "tag"),
        ("%YAML 1.1\n---\na: 1\n", "directive"),
        ("a: 1\n---\nb: 2\n", "multiple-documents"),
        ("a: 1\nb: 2\na: 3\n", "duplicate-key"),
        ("'2': a\n2: b\n", "duplicate-key"),
        ("12.0: a\n", "quote-required"),
        ("no: a\n", "ambiguous-scalar"),
        ("null: a\n", "key-not-text"),
        ("? [a, b]\n: c\n", "complex-key"),
        ("a:\n\tb: 1\n", "tab"),
        ("a: .inf\n", "number-out-of-range"),
        ("a: 99999999999999999999\n", "number-out-of-range"),
        ("", "empty-file"),
        ("# only a comment\n", "empty-file"),
        ("a: \"open\n", "syntax"),
        ("a: b: c\n", "syntax"),
    ] {
        assert_eq!(codes(text), [code], "{text:?}");
    }
}

#[test]
fn reports_everything_at_once() {
    assert_eq!(
        codes("a: no\na: 0755\n12.0: 1_000\n"),
        ["ambiguous-scalar", "duplicate-key", "ambiguous-scalar", "quote-required", "ambiguous-scalar"]
    );
}

#[test]
fn refuses_what_is_no_text_or_too_much_of_it() {
    let code = |bytes: &[u8]| read("test.yaml", bytes).problems[0].code;
    assert_eq!(code(b"a: \x00"), "not-text");
    assert_eq!(code(b"\xff\xfe"), "not-text");
    assert_eq!(code(&vec![b'a'; MAX_FILE_BYTES + 1]), "file-too-large");
    assert_eq!(code("[".repeat(1000).as_bytes()), "too-deep");
    assert_eq!(code("a: {".repeat(1000).as_bytes()), "too-deep");
    let block: String = (0..40).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(code(block.as_bytes()), "too-deep");
    assert_eq!(code(format!("[{}]", "1,\n".repeat(MAX_NODES + 1)).as_bytes()), "too-many-nodes");
    assert_eq!(code(format!("a: 1\nb: {}\n", "x".repeat(MAX_LINE_BYTES)).as_bytes()), "line-too-long");
}

#[test]
fn accepts_carriage_returns_and_a_byte_order_mark() {
    let document = read("test.yaml", "\u{feff}a: 1\r\nb: \"x\"\r\n".as_bytes());
    assert_eq!(document.problems, []);
    assert_eq!(document.root.unwrap().to_json(), json!({"a": 1, "b": "x"}));
}
