//! JSON files of checkpoints. JSON leaves open what a repeated key means, and readers take the first, the last or neither:
//! a file whose meaning depends on its reader is refused.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Reads a `T`. Errors, with line and column: no JSON, no `T`, a key that appears twice in one object, however deep.
pub(crate) fn read_json<'de, T: Deserialize<'de>>(json: &'de [u8]) -> serde_json::Result<T> {
    let value = serde_json::from_slice(json)?;
    serde_json::from_slice::<Unrepeated>(json)?;
    Ok(value)
}

/// Any value whose objects have each key once.
struct Unrepeated;

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnrepeatedVisitor)
    }
}

/// A key, borrowed from the text unless it holds escapes: two spellings of one text are one key.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct UnrepeatedVisitor;

impl<'de> Visitor<'de> for UnrepeatedVisitor {
    type Value = Unrepeated;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unrepeated, A::Error> {
        let mut seen = HashSet::new();
        while let Some(Key(key)) = map.next_key::<Key>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!("key `{key}` appears twice in one object")));
            }
            map.next_value::<Unrepeated>()?;
            seen.insert(key);
        }
        Ok(Unrepeated)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unrepeated, A::Error> {
        while items.next_element::<Unrepeated>()?.is_some() {}
        Ok(Unrepeated)
    }

    fn visit_unit<E>(self) -> Result<Unrepeated, E> {
        Ok(Unrepeated)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unrepeated, E> {
        Ok(Unrepeated)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unrepeated, E> {
        Ok(Unrepeated)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unrepeated, E> {
        Ok(Unrepeated)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unrepeated, E> {
        Ok(Unrepeated)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unrepeated, E> {
        Ok(Unrepeated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_repeated_key_is_refused_with_its_place_at_every_depth() {
        for (json, key, place) in [
            (r#"{"a": 1, "a": 1}"#, "`a`", "line 1 column 12"),
            ("{\"a\": 1,\n \"b\": [0, {\"c\": null, \"d\": 1.5, \"c\": true}]}", "`c`", "line 2"),
            (r#"{"o": {"layers": 2, "lay\u0065rs": 8}}"#, "`layers`", "line 1"),
        ] {
            let error = read_json::<Value>(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("appears twice") && error.contains(place), "{error}");
        }
    }

    #[test]
    fn equal_keys_of_different_objects_are_taken() {
        let json = r#"{"a": {"a": [{"a": -1}, {"a": "b", "c": false}]}, "b": 1e3}"#;
        assert_eq!(read_json::<Value>(json.as_bytes()).unwrap(), serde_json::from_str::<Value>(json).unwrap());
        assert!(read_json::<Value>(b"{").is_err());
    }
}
