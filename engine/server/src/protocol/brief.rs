//! Values of fields that are not honoured: enough of them to judge.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Items of a list or an object that are kept: more than any value has that is taken, so that what is cut is refused like the
/// whole.
const MOST_ITEMS: usize = 64;

/// A JSON value whose lists and objects end after [`MOST_ITEMS`]. A number takes two bytes of a body and 32 as a value.
pub struct Brief(pub Value);

struct BriefVisitor;

impl<'de> Visitor<'de> for BriefVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MOST_ITEMS {
            match list.next_element()? {
                Some(Brief(item)) => items.push(item),
                None => return Ok(items.into()),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut items = Map::new();
        while items.len() < MOST_ITEMS {
            match map.next_entry::<String, Brief>()? {
                Some((key, Brief(value))) => items.insert(key, value),
                None => return Ok(items.into()),
            };
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(items.into())
    }
}

impl<'de> Deserialize<'de> for Brief {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BriefVisitor).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        serde_json::from_str::<Brief>(text).unwrap().0
    }

    #[test]
    fn short_values_are_whole() {
        let value = json!({"a": [null, true, -1, 18446744073709551615_u64, 0.5, "x\n"], "b": {"c": []}});
        assert_eq!(read(&value.to_string()), value);
    }

    #[test]
    fn long_ones_end_and_are_read_to_the_end() {
        let list = read(&format!("[{}1]", "1,".repeat(100_000)));
        assert_eq!(list.as_array().map(Vec::len), Some(MOST_ITEMS));
        let map: String = (0..1000).map(|key| format!("\"{key}\":{key},")).collect();
        assert_eq!(read(&format!("{{{map}\"z\":[]}}")).as_object().map(Map::len), Some(MOST_ITEMS));
        assert!(serde_json::from_str::<Brief>(&format!("[{}x]", "1,".repeat(100))).is_err());
    }
}
