//! The JSON Schema of the settings file.

use anyhow::Result;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::options::Options;
use super::spellings;

/// The schema, made from the keys and their aliases.
pub fn schema() -> Result<Value> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = serde_json::to_value(generator.into_root_schema_for::<Options>())?;
    schema["$id"] = json!("https://archway-engine.github.io/schemas/serve-config/v1.schema.json");
    schema["title"] = json!("Settings of archway serve");
    if let Some(properties) = schema["properties"].as_object_mut() {
        for property in properties.values_mut() {
            require_value(property);
        }
        let aliases: Map<String, Value> = spellings::aliases()
            .into_iter()
            .map(|(alias, key)| {
                let value = if spellings::is_toggle(&alias) {
                    json!({"const": true, "description": format!("Sets `{key}`.")})
                } else {
                    json!({"$ref": format!("#/properties/{key}"), "description": format!("Same as `{key}`.")})
                };
                (alias, value)
            })
            .collect();
        properties.extend(aliases);
    }
    Ok(schema)
}

/// The text of the committed file.
pub fn text() -> Result<String> {
    Ok(serde_json::to_string_pretty(&schema()?)? + "\n")
}

/// A key without a value is an error: takes null out of what schemars made of an `Option`.
fn require_value(property: &mut Value) {
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            property["type"] = only.clone();
        }
    }
    if let Some(Value::Array(options)) = property.get_mut("anyOf") {
        options.retain(|option| option.get("type") != Some(&json!("null")));
        if let [only] = options.as_slice()
            && let Value::Object(only) = only.clone()
            && let Some(map) = property.as_object_mut()
        {
            map.remove("anyOf");
            map.extend(only);
        }
    }
    if let Some(map) = property.as_object_mut() {
        map.remove("default");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the schema lies in the repository.
    const PATH: &str = "schemas/serve-config/v1.schema.json";

    #[test]
    fn the_committed_schema_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PATH);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text().unwrap(), "{PATH} is out of date: archway config schema > {PATH}");
    }

    #[test]
    fn keys_and_aliases_have_a_type() {
        let schema = schema().unwrap();
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(properties["port"]["type"], json!("integer"));
        assert_eq!(properties["tp"]["$ref"], json!("#/properties/tensor-parallel-size"));
        assert_eq!(properties["disable-radix-cache"]["const"], json!(true));
        for (name, property) in properties {
            let typed =
                ["type", "$ref", "const", "enum", "oneOf", "anyOf"].iter().any(|key| property.get(key).is_some());
            assert!(typed, "{name}: {property}");
        }
    }
}
