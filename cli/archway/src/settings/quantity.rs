//! Numbers as people write them: `128k` tokens, `2GiB`.

use std::borrow::Cow;
use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// A number of things. `k`, `m`, `g` are thousands, `K`, `M`, `G` powers of 1024, as in vLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// A number of bytes: whole, or with KiB, MiB or GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A number of 64 bits that can be written with a unit.
trait Quantity: Sized {
    const EXPECTED: &'static str;

    fn new(number: u64) -> Self;

    /// What a unit multiplies by, or what is wrong with it.
    fn unit(unit: &str) -> Result<u64, String>;
}

impl Quantity for Count {
    const EXPECTED: &'static str = "a whole number, or one with k, m, g (thousands) or K, M, G (powers of 1024)";

    fn new(number: u64) -> Self {
        Self(number)
    }

    fn unit(unit: &str) -> Result<u64, String> {
        match unit {
            "" => Ok(1),
            "k" => Ok(1000),
            "m" => Ok(1_000_000),
            "g" => Ok(1_000_000_000),
            "K" => Ok(1 << 10),
            "M" => Ok(1 << 20),
            "G" => Ok(1 << 30),
            other => Err(format!("`{other}` is not a unit; give {}", Self::EXPECTED)),
        }
    }
}

impl Quantity for Bytes {
    const EXPECTED: &'static str = "a number of bytes, or one with KiB, MiB or GiB";

    fn new(number: u64) -> Self {
        Self(number)
    }

    fn unit(unit: &str) -> Result<u64, String> {
        match unit {
            "" => Ok(1),
            "KiB" => Ok(1 << 10),
            "MiB" => Ok(1 << 20),
            "GiB" => Ok(1 << 30),
            "KB" | "MB" | "GB" => {
                let binary = unit.replace('B', "iB");
                Err(format!(
                    "`{unit}` can be read as powers of 1000 or of 1024; write {binary} or the bytes themselves"
                ))
            }
            other => Err(format!("`{other}` is not a unit; give {}", Self::EXPECTED)),
        }
    }
}

fn parse<Q: Quantity>(text: &str) -> Result<Q, String> {
    let text = text.trim();
    let split = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let fail = || format!("`{text}` is not a number; give {}", Q::EXPECTED);
    if number.is_empty() {
        return Err(fail());
    }
    let unit = Q::unit(unit.trim())?;
    let value = match number.split_once('.') {
        None => match number.parse::<u64>() {
            Ok(value) => value.checked_mul(unit),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => None,
            Err(_) => return Err(fail()),
        },
        Some(_) => {
            let value = number.parse::<f64>().map_err(|_| fail())? * unit as f64;
            (value.fract() == 0.0 && value < u64::MAX as f64).then_some(value as u64)
        }
    };
    value.map(Q::new).ok_or_else(|| format!("`{text}` is not a whole number of 64 bits"))
}

struct QuantityVisitor<Q>(std::marker::PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for QuantityVisitor<Q> {
    type Value = Q;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(Q::EXPECTED)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Q, E> {
        Ok(Q::new(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Q, E> {
        u64::try_from(number).map(Q::new).map_err(|_| E::custom(format_args!("{number} is below 0")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Q, E> {
        parse(text).map_err(E::custom)
    }
}

/// The traits by which clap, serde and schemars read and write a quantity.
macro_rules! quantity {
    ($kind:ty, $name:literal, $pattern:literal) => {
        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                parse(text)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(QuantityVisitor(std::marker::PhantomData))
            }
        }

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(self.0)
            }
        }

        impl JsonSchema for $kind {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": <$kind as Quantity>::EXPECTED,
                    "type": ["integer", "string"],
                    "minimum": 0,
                    "pattern": $pattern,
                })
            }
        }
    };
}

quantity!(Count, "Count", "^[0-9]+(\\.[0-9]+)? *[kmgKMG]?$");
quantity!(Bytes, "Bytes", "^[0-9]+(\\.[0-9]+)? *([KMG]iB)?$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        let count = |text: &str| text.parse::<Count>().map(|count| count.0).ok();
        assert_eq!(count("4096"), Some(4096));
        assert_eq!(count("128k"), Some(128_000));
        assert_eq!(count("128K"), Some(131_072));
        assert_eq!(count("1.5k"), Some(1500));
        for wrong in ["", "k", "-1", "1.5", "1x", "99999999999999999999", "20000000000G", "1.2.3k"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        assert!("99999999999999999999".parse::<Count>().unwrap_err().contains("of 64 bits"));
        assert_eq!("2GiB".parse::<Bytes>(), Ok(Bytes(2 << 30)));
        assert_eq!("0.5 KiB".parse::<Bytes>(), Ok(Bytes(512)));
        assert!("64MB".parse::<Bytes>().unwrap_err().contains("write MiB"));
    }
}
