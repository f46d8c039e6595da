//! Bandwidths as vendors state them: decimal gigabytes per second, "4800GB/s".

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Gigabytes (10^9 bytes) per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Bandwidth(f64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a bandwidth: a number with GB/s, e.g. \"4800GB/s\"")]
pub struct BandwidthError(pub String);

impl Bandwidth {
    pub const fn gigabytes_per_second(self) -> f64 {
        self.0
    }

    pub const fn bytes_per_second(self) -> f64 {
        self.0 * 1e9
    }
}

impl FromStr for Bandwidth {
    type Err = BandwidthError;

    fn from_str(text: &str) -> Result<Self, BandwidthError> {
        let error = || BandwidthError(text.to_owned());
        let number = text.strip_suffix("GB/s").ok_or_else(error)?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(error());
        }
        let value: f64 = number.parse().map_err(|_| error())?;
        if value > 0.0 && value <= 1e6 { Ok(Self(value)) } else { Err(error()) }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}GB/s", self.0)
    }
}

impl Serialize for Bandwidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Bandwidth {
    fn schema_name() -> Cow<'static, str> {
        "Bandwidth".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Decimal gigabytes per second, e.g. \"4800GB/s\".",
            "type": "string",
            "pattern": "^[0-9]+(\\.[0-9]+)?GB/s$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_gigabytes_per_second_only() {
        assert_eq!("4800GB/s".parse::<Bandwidth>().unwrap().bytes_per_second(), 4.8e12);
        for text in ["4.8TB/s", "4800", "GB/s", "0GB/s", "1e3GB/s", "4800 GB/s"] {
            assert_eq!(text.parse::<Bandwidth>(), Err(BandwidthError(text.into())), "{text}");
        }
    }
}
