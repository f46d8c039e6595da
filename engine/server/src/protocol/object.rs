//! Strict reading of JSON objects: a field is honoured, named as ignored, or refused; never dropped in silence.
//!
//! A request type lists the fields that it honours (`json_object!`). `Object<T>` reads them in one pass and keeps
//! apart what else the client sent: explicit nulls, and fields under other names, which `known` then judges.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};

use super::brief::Brief;

/// Most fields of an object that are null or not honoured: each is compared with all others.
const MOST_EXTRAS: usize = 256;

/// The honoured fields of one kind of object.
pub trait Fields: Default {
    fn names() -> Vec<&'static str>;

    /// Reads the value of `key` if it is an honoured field; an explicit null counts as absent and is noted.
    /// Returns false, without having read the value, for any other key.
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
        nulls: &mut Vec<String>,
    ) -> Result<bool, A::Error>;
}

/// What an object held beside values of honoured fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Names whose value was null.
    pub nulls: Vec<String>,
    /// Names that the type does not honour, with the beginning of their value.
    pub other: Vec<(String, Value)>,
}

/// A JSON object read as `T`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object<T> {
    pub fields: T,
    pub extras: Extras,
}

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.fields
    }
}

/// A key, borrowed from the text unless it holds escapes. Read as an identifier: so `serde_path_to_error` sees it.
struct Key<'a>(Cow<'a, str>);

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a field name")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Fields> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<T>, A::Error> {
        let mut object = Object { fields: T::default(), extras: Extras::default() };
        while let Some(Key(key)) = map.next_key()? {
            if object.fields.read(&key, &mut map, &mut object.extras.nulls)? {
                continue;
            }
            let extras = &mut object.extras;
            if extras.nulls.len() + extras.other.len() >= MOST_EXTRAS {
                return Err(A::Error::custom(format_args!("more than {MOST_EXTRAS} fields without an effect")));
            }
            if extras.other.iter().any(|(name, _)| *name == key) || extras.nulls.iter().any(|name| *name == key) {
                return Err(duplicate(&key));
            }
            match map.next_value()? {
                Brief(Value::Null) => extras.nulls.push(key.into_owned()),
                Brief(value) => extras.other.push((key.into_owned(), value)),
            }
        }
        Ok(object)
    }
}

impl<'de, T: Fields> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Stores the next value of `map` in an empty `slot`.
pub fn read_field<'de, A, V>(
    slot: &mut Option<V>,
    key: &str,
    map: &mut A,
    nulls: &mut Vec<String>,
) -> Result<(), A::Error>
where
    A: MapAccess<'de>,
    V: Deserialize<'de>,
{
    if slot.is_some() || nulls.iter().any(|name| name == key) {
        return Err(duplicate(key));
    }
    *slot = map.next_value()?;
    if slot.is_none() {
        nulls.push(key.to_owned());
    }
    Ok(())
}

/// A schema written as JSON, for types whose JSON form no Rust type has.
pub fn from_json(schema: Value) -> RefOr<Schema> {
    serde_json::from_value(schema).unwrap_or_else(|_| Schema::default().into())
}

fn duplicate<E: Error>(key: &str) -> E {
    E::custom(format_args!("field `{key}` is given twice"))
}

/// Declares an object's honoured fields, every one optional. `name as "key"` gives the JSON key where it is not a Rust
/// name; `..part: Type` takes in the fields of another such type.
macro_rules! json_object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident $(as $key:literal)? : $kind:ty, )*
            $( ..$part:ident : $part_kind:ty, )?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, utoipa::ToSchema)]
        pub struct $name {
            $( $(#[$field_meta])* $(#[schema(rename = $key)])? pub $field: Option<$kind>, )*
            $( #[schema(ignore)] pub $part: $part_kind, )?
        }

        impl $crate::protocol::object::Fields for $name {
            fn names() -> Vec<&'static str> {
                #[allow(unused_mut)]
                let mut names = vec![$( json_object!(@key $field $($key)?), )*];
                $( names.extend(<$part_kind as $crate::protocol::object::Fields>::names()); )?
                names
            }

            fn read<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                map: &mut A,
                nulls: &mut Vec<String>,
            ) -> Result<bool, A::Error> {
                $( if key == json_object!(@key $field $($key)?) {
                    return $crate::protocol::object::read_field(&mut self.$field, key, map, nulls).map(|()| true);
                } )*
                $( if self.$part.read(key, map, nulls)? {
                    return Ok(true);
                } )?
                Ok(false)
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}

pub(crate) use json_object;

#[cfg(test)]
mod tests {
    use super::*;

    json_object! {
        pub struct Inner { depth: u32, }
    }
    json_object! {
        /// A pair.
        pub struct Outer {
            kind as "type": String,
            inner: u32,
            ..rest: Inner,
        }
    }

    fn read(text: &str) -> Result<Object<Outer>, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn honoured_null_and_other_fields_are_kept_apart() {
        let object = read(r#"{"type":"a","depth":3,"inner":null,"zzz":[1],"\u0079":null}"#).unwrap();
        assert_eq!(object.kind.as_deref(), Some("a"));
        assert_eq!(object.rest.depth, Some(3));
        assert_eq!(object.inner, None);
        assert_eq!(object.extras.nulls, ["inner", "y"]);
        assert_eq!(object.extras.other, [("zzz".to_owned(), serde_json::json!([1]))]);
        assert_eq!(Outer::names(), ["type", "inner", "depth"]);
    }

    #[test]
    fn a_field_given_twice_is_refused() {
        for text in [
            r#"{"inner":1,"inner":2}"#,
            r#"{"inner":null,"inner":2}"#,
            r#"{"inner":1,"inner":null}"#,
            r#"{"zzz":1,"zzz":1}"#,
            r#"{"zzz":null,"zzz":1}"#,
        ] {
            assert!(read(text).unwrap_err().contains("is given twice"), "{text}");
        }
    }

    #[test]
    fn strange_fields_are_counted() {
        let fields = |count: usize| (0..count).map(|index| format!("\"f{index}\":1")).collect::<Vec<_>>().join(",");
        assert_eq!(read(&format!("{{{}}}", fields(256))).unwrap().extras.other.len(), 256);
        let refused = read(&format!("{{{}}}", fields(200_000))).unwrap_err();
        assert!(refused.starts_with("more than 256 fields"), "{refused}");
    }

    #[test]
    fn anything_but_an_object_is_refused() {
        for text in ["[]", "1", "null", "\"a\"", "true"] {
            assert!(read(text).unwrap_err().contains("expected an object"), "{text}");
        }
    }
}
