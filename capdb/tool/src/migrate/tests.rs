use super::*;

fn file(text: &str) -> TextFile {
    TextFile { path: "arch/sm90.yaml".into(), relative: "arch/sm90.yaml".into(), bytes: text.as_bytes().to_vec() }
}

const VERSION_0: &str = include_str!("../../tests/migrate/sm90.v0.yaml");

#[test]
fn version_0_is_lifted_with_its_comments() {
    let Lifted::Changed(text) = lift(&file(VERSION_0)).unwrap() else { panic!("nothing was lifted") };
    insta::assert_snapshot!(text);
    assert_eq!(lift(&file(&text)).unwrap(), Lifted::Current);
}

#[test]
fn what_cannot_be_lifted_says_where_and_why() {
    let codes = |from: &str, to: &str| -> Vec<(String, &'static str)> {
        assert!(VERSION_0.contains(from));
        let problems = lift(&file(&VERSION_0.replace(from, to))).unwrap_err();
        problems.into_iter().map(|problem| (problem.message, problem.code)).collect()
    };
    for (from, to, why) in [
        ("8: 0.5", "8: 0.3", "not a whole number of bytes"),
        ("2: 64,", "2: -64,", "not a whole number of bytes"),
        ("2: 64,", "2: many,", "a size of version 0 is a number"),
        ("provenance: copied", "provenance: heard", "measured, documented or copied"),
        ("    source: a-run\n", "", "no `source` beside it"),
        ("bf16: true", "bf16: probably", "true or false"),
    ] {
        let found = codes(from, to);
        assert!(found.len() == 1 && found[0].0.contains(why) && found[0].1 == "not-liftable", "{why}: {found:?}");
    }
    assert_eq!(codes("arch/0", "arch/2")[0].1, "schema-of-the-future");
    assert_eq!(codes("arch/0", "gpu/0")[0].1, "schema-unreadable");
    assert_eq!(codes("arch/0", "nonsense")[0].1, "schema-unreadable");
    // A key that neither version knows is found by reading the result.
    assert_eq!(codes("name: Hopper", "colour: green")[0].1, "wrong-form");
}
