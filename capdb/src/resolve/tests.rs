use serde_json::json;

use super::*;
use crate::record::EvidenceKind;
use crate::yaml;

fn node(text: &str) -> yaml::Node {
    let document = yaml::read("test.yaml", text.as_bytes());
    assert_eq!(document.problems, []);
    document.root.unwrap()
}

const PARENT: &str = "id: sm100\nname: parent\nallreduce:\n  one_shot:\n    max_message: {2: 8MiB, 4: 2MiB}\n    topologies: [nvswitch]\n    evidence: {kind: upstream, source: a, note: parent's}\n";
const CHILD: &str = "id: sm103\nextends: sm100\nallreduce:\n  one_shot:\n    max_message:\n      4: 4MiB\n      8: 1MiB\n    evidence: {kind: measured, source: b}\n    evidence_for:\n      max_message.8: {kind: guessed, source: c}\n";

fn resolve() -> Resolved {
    let (parent, child) = (node(PARENT), node(CHILD));
    let layer = |kind, id, text: &'static str, node| Layer { kind, id, file: id, bytes: text.as_bytes(), node };
    Resolved::merge(
        "sm103",
        Some("sm103"),
        None,
        &[layer(LayerKind::Parent, "sm100", PARENT, &parent), layer(LayerKind::Arch, "sm103", CHILD, &child)],
    )
}

#[test]
fn merges_maps_by_key_and_keeps_names_apart() {
    let resolved = resolve();
    assert_eq!(resolved.value["id"], "sm103");
    assert_eq!(resolved.value.get("name"), None);
    assert_eq!(
        resolved.value.pointer("/allreduce/one_shot/max_message"),
        Some(&json!({"2": "8MiB", "4": "4MiB", "8": "1MiB"}))
    );
    assert_eq!(
        resolved.value.pointer("/allreduce/one_shot/evidence"),
        Some(&json!({"kind": "measured", "source": "b"}))
    );
}

#[test]
fn every_value_knows_its_line_and_its_evidence() {
    let resolved = resolve();
    let origin = |key: &str| &resolved.origins[&format!("/allreduce/one_shot/{key}")];
    assert_eq!(
        (origin("max_message/2").to_string().as_str(), origin("max_message/2").kind()),
        ("sm100:5", EvidenceKind::Inherited)
    );
    assert_eq!(
        (origin("max_message/4").to_string().as_str(), origin("max_message/4").kind()),
        ("sm103:6", EvidenceKind::Measured)
    );
    assert_eq!(
        (origin("max_message/8").to_string().as_str(), origin("max_message/8").kind()),
        ("sm103:7", EvidenceKind::Guessed)
    );
    assert_eq!(origin("topologies").provenance(), Provenance::Inherited);
}

#[test]
fn null_removes_and_a_case_keeps_the_evidence_of_what_it_changes() {
    let mut resolved = resolve();
    let case = node(
        "allreduce:\n  one_shot:\n    max_message: {4: 84KiB, 2: null}\n  two_shot:\n    max_message: {4: 1MiB}\n",
    );
    resolved.apply(&Layer { kind: LayerKind::Case, id: "case", file: "case", bytes: b"", node: &case });
    assert_eq!(resolved.value.pointer("/allreduce/one_shot/max_message"), Some(&json!({"4": "84KiB", "8": "1MiB"})));
    assert_eq!(resolved.origins["/allreduce/one_shot/max_message/4"].kind(), EvidenceKind::Measured);
    assert!(!resolved.origins.contains_key("/allreduce/one_shot/max_message/2"));
    let gone = node("allreduce: null\n");
    resolved.apply(&Layer { kind: LayerKind::Case, id: "case", file: "case", bytes: b"", node: &gone });
    assert_eq!(resolved.value.get("allreduce"), None);
    assert!(resolved.origins.keys().all(|key| !key.starts_with("/allreduce")));
}
