//! Sizes in bytes: `65536`, `"64KiB"`, `"64MiB"`. Decimal units are errors, because `64MB` means two things in this field.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Largest size that a record may hold: 1 TiB.
pub const MAX_SIZE: u64 = 1 << 40;

/// A size in bytes, from 1 to 2^40.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(u64);

/// Why a text or number is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("a size of 0 bytes says nothing")]
    Zero,
    #[error("{0} bytes is more than 2^40, the largest size of a record")]
    TooLarge(u128),
    #[error("a size cannot be negative")]
    Negative,
    #[error("`{text}` is ambiguous: decimal megabytes or binary mebibytes?")]
    Ambiguous { text: String, binary: String },
    #[error("`{unit}` is not a unit of size")]
    UnknownUnit { unit: String },
    #[error("`{0}` is not a size")]
    NotASize(String),
}

impl SizeError {
    /// What to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Zero => {
                "leave the key out to say that there is no row, or give the limit in bytes, KiB, MiB or GiB".into()
            }
            Self::TooLarge(_) => "check the unit; no message is a terabyte long".into(),
            Self::Negative => "give the limit in bytes, KiB, MiB or GiB".into(),
            Self::Ambiguous { binary, .. } => format!("write `{binary}` (powers of 1024), or the number of bytes"),
            Self::UnknownUnit { .. } | Self::NotASize(_) => {
                "write bytes as an integer, or a whole number with KiB, MiB or GiB".into()
            }
        }
    }
}

impl Size {
    /// A size of `bytes`.
    pub fn from_bytes(bytes: u64) -> Result<Self, SizeError> {
        match bytes {
            0 => Err(SizeError::Zero),
            1..=MAX_SIZE => Ok(Self(bytes)),
            _ => Err(SizeError::TooLarge(bytes.into())),
        }
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if text.starts_with('-') {
            return Err(SizeError::Negative);
        }
        let number: u128 = text[..digits].parse().map_err(|_| SizeError::NotASize(text.to_owned()))?;
        let unit = &text[digits..];
        let shift = match unit {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "K" | "KB" | "kB" | "M" | "MB" | "G" | "GB" => {
                let binary = format!("{number}{}iB", unit[..1].to_uppercase());
                return Err(SizeError::Ambiguous { text: text.to_owned(), binary });
            }
            _ if unit.starts_with(['.', ',', ' ']) => return Err(SizeError::NotASize(text.to_owned())),
            _ => return Err(SizeError::UnknownUnit { unit: unit.to_owned() }),
        };
        let bytes = number.checked_shl(shift).filter(|bytes| bytes >> shift == number).unwrap_or(u128::MAX);
        u64::try_from(bytes).map_err(|_| SizeError::TooLarge(bytes)).and_then(Self::from_bytes)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0.trailing_zeros() >= shift {
                return write!(formatter, "{}{unit}", self.0 >> shift);
            }
        }
        write!(formatter, "{}", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.trailing_zeros() >= 10 { serializer.collect_str(self) } else { serializer.serialize_u64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a size: bytes as an integer, or a whole number with KiB, MiB or GiB")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Size::from_bytes(bytes).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map_err(|_| SizeError::Negative).and_then(Size::from_bytes).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size: bytes as an integer, or a whole number with KiB, MiB or GiB. Decimal units such as MB are refused as ambiguous.",
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": MAX_SIZE,
            "pattern": "^[1-9][0-9]*(KiB|MiB|GiB)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_units_and_prints_the_largest_exact_one() {
        for (text, bytes, printed) in [
            ("64MiB", 67_108_864, "64MiB"),
            ("1536KiB", 1_572_864, "1536KiB"),
            ("7", 7, "7"),
            ("99KiB", 101_376, "99KiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, printed));
        }
        assert_eq!("1024GiB".parse::<Size>().unwrap().bytes(), MAX_SIZE);
    }

    #[test]
    fn refuses_what_is_ambiguous_or_out_of_range() {
        assert_eq!("64MB".parse::<Size>(), Err(SizeError::Ambiguous { text: "64MB".into(), binary: "64MiB".into() }));
        assert_eq!("64MiBB".parse::<Size>(), Err(SizeError::UnknownUnit { unit: "MiBB".into() }));
        assert_eq!("0".parse::<Size>(), Err(SizeError::Zero));
        assert_eq!("-1".parse::<Size>(), Err(SizeError::Negative));
        for text in ["", "MiB", "1.5MiB", "1 MiB"] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::NotASize(text.into())));
        }
        for text in ["1025GiB", "340282366920938463463374607431768211455GiB", "99999999999999999999999999999999999999"]
        {
            assert!(matches!(text.parse::<Size>(), Err(SizeError::TooLarge(_))), "{text}");
        }
    }
}
