use capdb::problem::Problem;

use super::*;

const FILE: &str = "schema: arch/1\nid: sm120\ncompute_capability: 12.0\nallreduce:\n  one_shot:\n    max_message: {2: 64MB}\n    max_message: {4: 1MiB}\n";

fn sources() -> Sources {
    let mut sources = Sources::default();
    sources.insert("arch/sm120.yaml", FILE);
    sources.insert("arch/sm100.yaml", "schema: arch/1\nid: sm120\n");
    sources
}

fn span(needle: &str) -> std::ops::Range<usize> {
    let start = FILE.find(needle).unwrap();
    start..start + needle.len()
}

fn problems() -> Vec<Problem> {
    let path = "arch/sm120.yaml";
    let second = FILE.rfind("max_message").unwrap();
    let mut problems =
        vec![
            Problem::error("duplicate-key", path, second..second + 11, "key `max_message` appears twice")
                .label("second time")
                .related(None, span("max_message"), "first time")
                .hint("keep one of them"),
            Problem::error("wrong-type", path, span("12.0"), "`compute_capability` must be a quoted string")
                .label("a number")
                .hint("12.0 without quotes is a number")
                .fix("\"12.0\""),
            Problem::warning("duplicate-id", path, span("sm120"), "two records have the id `sm120`")
                .label("here")
                .related(Some("arch/sm100.yaml".into()), 19..24, "and here"),
            Problem::error("empty-file", "arch/empty.yaml", 0..0, "the file is empty"),
        ];
    sort(&mut problems);
    problems
}

#[test]
fn full_looks_like_rustc() {
    insta::assert_snapshot!(render(&problems(), &sources(), Format::Full, false));
}

#[test]
fn concise_is_one_line_each() {
    insta::assert_snapshot!(render(&problems(), &sources(), Format::Concise, false));
}

#[test]
fn json_has_bytes_and_places() {
    insta::assert_snapshot!(render(&problems(), &sources(), Format::Json, false));
}

#[test]
fn github_escapes_its_syntax() {
    let mut problems = problems();
    problems[0].message = "50 % of it,\nand: more".into();
    insta::assert_snapshot!(render(&problems, &sources(), Format::Github, false));
}

#[test]
fn a_long_line_is_cut_but_its_column_is_true() {
    let mut sources = Sources::default();
    let text = format!("key: [{}bad{}]\n", "ü, ".repeat(100_000), ", x".repeat(100_000));
    let start = text.find("bad").unwrap();
    sources.insert("a.yaml", text);
    let problem = Problem::error("code", "a.yaml", start..start + 3, "message").label("this").fix("good");
    let printed = render(&[problem], &sources, Format::Full, false);
    assert!(printed.contains("a.yaml:1:300007"), "{printed}");
    assert!(printed.len() < 1500, "{printed}");
    assert!(printed.contains("^^^ this"), "{printed}");
}

#[test]
fn a_span_over_many_lines_shows_its_first() {
    let mut sources = Sources::default();
    sources.insert("a.yaml", "x: 1\n".repeat(1000));
    let problem = Problem::error("code", "a.yaml", 5..4000, "message");
    let printed = render(&[problem], &sources, Format::Full, false);
    assert!(printed.lines().count() < 10, "{printed}");
}

#[test]
fn no_span_makes_it_panic() {
    let text = "a: ü\r\n\tb: \u{0}x\u{7f}\u{202e}\r\n\n日本: [\u{1F600}]\n";
    let mut sources = Sources::default();
    sources.insert("a.yaml", text);
    sources.insert("empty.yaml", "");
    for path in ["a.yaml", "empty.yaml", "unknown.yaml"] {
        for start in 0..text.len() + 3 {
            for end in start..text.len() + 3 {
                let problem =
                    Problem::error("code", path, start..end, "a\nb").label("l").fix("x\ny").related(None, 0..end, "r");
                for format in [Format::Full, Format::Concise, Format::Json, Format::Github] {
                    assert!(!render(std::slice::from_ref(&problem), &sources, format, false).is_empty());
                }
            }
        }
    }
}

#[test]
fn the_summary_counts() {
    assert_eq!(Summary::of(&problems(), 31).line(), "3 errors and 1 warning in 31 files");
    assert_eq!(Summary::of(&[], 1).line(), "1 file checked, no findings");
}
