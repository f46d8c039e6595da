//! Versions of toolkits, drivers and NCCL: tuples of numbers, not semver. "2.30" is newer than "2.4"; "580.65.06" keeps its zero.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A dotted version of one to four numbers, compared number by number; a missing number counts as 0.
#[derive(Clone, Debug)]
pub struct Version {
    text: String,
    parts: [u32; 4],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version: one to four numbers joined by dots, e.g. \"12.8\" or \"580.65.06\"")]
pub struct VersionError(pub String);

impl Version {
    /// The numbers, padded with zeros.
    pub fn parts(&self) -> [u32; 4] {
        self.parts
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error = || VersionError(text.to_owned());
        let mut parts = [0; 4];
        for (count, part) in text.split('.').enumerate() {
            if part.is_empty() || part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(error());
            }
            *parts.get_mut(count).ok_or_else(error)? = part.parse().map_err(|_| error())?;
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts.cmp(&other.parts)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Version {
    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A toolkit, driver or NCCL version, always quoted: one to four numbers joined by dots.",
            "type": "string",
            "pattern": "^[0-9]{1,9}(\\.[0-9]{1,9}){0,3}$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn compares_numbers_not_text() {
        assert!(version("2.30") > version("2.4"));
        assert!(version("580.65.06") > version("580.65"));
        assert_eq!(version("13"), version("13.0"));
        assert_eq!(version("580.65.06").to_string(), "580.65.06");
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "12.", ".8", "12.8a", "1.2.3.4.5", "-1", "12 .8", "9999999999"] {
            assert_eq!(text.parse::<Version>(), Err(VersionError(text.into())), "{text}");
        }
    }
}
