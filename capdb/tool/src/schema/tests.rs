use serde_json::json;

use super::*;

#[test]
fn every_schema_is_valid_draft_2020_12_and_closed() {
    for kind in SCHEMAS {
        let schema = kind.generate();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{}", kind.name);
        assert_eq!(schema["additionalProperties"], false, "{}", kind.name);
        jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    }
}

#[test]
fn the_committed_schemas_are_current() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    assert_eq!(check(&folder, None).unwrap(), []);
}

#[test]
fn shapes_follow_references() {
    let schema = SchemaKind::by_name("arch").unwrap().generate();
    let root = Shape::root(&schema);
    let limit = root.at("/allreduce/one_shot/max_message/4").unwrap();
    assert_eq!(limit.type_name(), Some("Size"));
    assert!(root.at("/allreduce/one_shot/max_message").unwrap().is_number_map());
    assert!(root.at("/allreduce/one_shot/topologies/0").unwrap().words().unwrap().contains(&"nvswitch"));
    assert!(root.at("/allreduce/one_shot/evidence/kind").unwrap().words().unwrap().contains(&"measured"));
    assert!(root.at("/features/wgmma").unwrap().words().unwrap().contains(&"absent"));
    assert!(root.at("/allreduce").unwrap().keys().contains(&"two_shot"));
    assert!(root.at("/nonsense").is_none());
    assert!(root.at("/compute_capability").unwrap().wants_text());
}

/// A change of `base`, and whether files of the old form still fit.
fn verdict(change: impl FnOnce(&mut serde_json::Value)) -> bool {
    let base = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {
            "id": {"type": "string", "pattern": "^[a-z]+$", "minLength": 1, "description": "a"},
            "kind": {"$ref": "#/$defs/Kind"},
            "count": {"type": "integer", "minimum": 1, "maximum": 8},
            "list": {"type": "array", "items": {"$ref": "#/$defs/Kind"}, "minItems": 1},
            "sizes": {"type": "object", "patternProperties": {"^\\d+$": {"type": ["integer", "string"]}}, "additionalProperties": false},
            "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Node"}},
            "any": true,
        },
        "$defs": {
            "Kind": {"oneOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "const": "b"}]},
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "additionalProperties": false},
        },
    });
    let mut changed = base.clone();
    change(&mut changed);
    breakages(&base, &changed).is_empty()
}

#[test]
fn accepts_changes_that_widen() {
    let widening: [fn(&mut serde_json::Value); 12] = [
        |_| {},
        |schema| schema["properties"]["new"] = json!({"type": "string"}),
        |schema| schema["properties"]["id"]["description"] = json!("b"),
        |schema| schema["required"] = json!([]),
        |schema| schema["$defs"]["Kind"] = json!({"enum": ["a", "b", "c"]}),
        |schema| schema["properties"]["count"]["type"] = json!("number"),
        |schema| schema["properties"]["count"]["maximum"] = json!(9),
        |schema| {
            schema["properties"]["id"].as_object_mut().unwrap().remove("pattern");
        },
        |schema| schema["properties"]["list"]["minItems"] = json!(0),
        |schema| schema["properties"]["sizes"]["patternProperties"]["^\\d+$"] = json!(true),
        |schema| schema["additionalProperties"] = json!(true),
        |schema| schema["$defs"]["Node"]["properties"]["other"] = json!({"type": "string"}),
    ];
    for (index, change) in widening.into_iter().enumerate() {
        assert!(verdict(change), "change {index}");
    }
}

#[test]
fn refuses_changes_that_narrow_or_that_it_does_not_understand() {
    let narrowing: [fn(&mut serde_json::Value); 18] = [
        |schema| schema["required"] = json!(["id", "kind"]),
        |schema| {
            schema["properties"].as_object_mut().unwrap().remove("count");
        },
        |schema| schema["$defs"]["Kind"] = json!({"enum": ["a"]}),
        |schema| schema["properties"]["kind"] = json!({"type": "string", "const": "a"}),
        |schema| schema["properties"]["count"]["type"] = json!("string"),
        |schema| schema["properties"]["count"]["maximum"] = json!(7),
        |schema| schema["properties"]["count"]["exclusiveMinimum"] = json!(0),
        |schema| schema["properties"]["id"]["pattern"] = json!("^[a-y]+$"),
        |schema| schema["properties"]["id"]["maxLength"] = json!(8),
        |schema| schema["properties"]["list"]["minItems"] = json!(2),
        |schema| schema["properties"]["list"]["uniqueItems"] = json!(true),
        |schema| schema["properties"]["sizes"]["patternProperties"] = json!({"^\\d$": {"type": ["integer", "string"]}}),
        |schema| schema["properties"]["sizes"]["patternProperties"]["^\\d+$"]["type"] = json!("string"),
        |schema| schema["$defs"]["Node"]["required"] = json!(["next"]),
        |schema| schema["properties"]["any"] = json!({"type": "string"}),
        |schema| schema["properties"]["id"]["contentEncoding"] = json!("base64"),
        |schema| schema["properties"]["map"]["additionalProperties"] = json!(false),
        |schema| schema["allOf"] = json!([{"required": ["kind"]}]),
    ];
    for (index, change) in narrowing.into_iter().enumerate() {
        assert!(!verdict(change), "change {index}");
    }
}

#[test]
fn a_breaking_change_is_never_written() {
    let folder = tempfile::tempdir().unwrap();
    assert!(write(folder.path()).unwrap().iter().all(|finding| finding.kind == FindingKind::Written));
    assert_eq!(write(folder.path()).unwrap(), []);
    // The committed one accepts a key that the types do not know any more.
    let path = folder.path().join("arch/v1.schema.json");
    let mut schema = SchemaKind::by_name("arch").unwrap().generate();
    schema["properties"]["colour"] = json!({"type": "string"});
    std::fs::write(&path, schema.to_string()).unwrap();
    let findings = write(folder.path()).unwrap();
    let FindingKind::Breaking(breakages) = &findings[0].kind else { panic!("{findings:?}") };
    assert_eq!(breakages[0].what, "the key `colour` is gone");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), schema.to_string());
    // The committed one lacks a key that the types have: drift, and written.
    let mut schema = SchemaKind::by_name("arch").unwrap().generate();
    schema["properties"].as_object_mut().unwrap().remove("notes");
    std::fs::write(&path, schema.to_string()).unwrap();
    assert_eq!(check(folder.path(), None).unwrap()[0].kind, FindingKind::Drift);
    assert_eq!(write(folder.path()).unwrap()[0].kind, FindingKind::Written);
}
