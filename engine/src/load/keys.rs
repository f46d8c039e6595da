//! Typed reading of configuration keys, with errors that name file and key.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::ConfigError;

/// Bounds that no real model comes near; they keep a damaged file from asking for absurd memory.
pub(crate) mod bounds {
    use std::ops::RangeInclusive;

    pub const LAYERS: RangeInclusive<u64> = 1..=4096;
    pub const WIDTH: RangeInclusive<u64> = 1..=1 << 22;
    pub const HEADS: RangeInclusive<u64> = 1..=1 << 16;
    pub const HEAD_WIDTH: RangeInclusive<u64> = 1..=1 << 16;
    pub const EXPERTS: RangeInclusive<u64> = 1..=1 << 16;
    pub const VOCABULARY: RangeInclusive<u64> = 1..=1 << 26;
    pub const CONTEXT: RangeInclusive<u64> = 1..=1 << 32;
}

/// One JSON object of a configuration file. A key whose value is `null` counts as absent, as in Hugging Face's reader.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    path: &'a str,
    /// Dotted prefix of this object, empty or ending in a dot.
    prefix: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Keys<'a> {
    pub fn new(path: &'a str, prefix: &'a str, map: &'a Map<String, Value>) -> Self {
        Self { path, prefix, map }
    }

    pub fn error(&self, key: &str, message: impl Display) -> ConfigError {
        ConfigError { path: self.path.to_owned(), key: format!("{}{key}", self.prefix), message: message.to_string() }
    }

    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    fn wrong_type(&self, key: &str, value: &Value, wanted: &str) -> ConfigError {
        self.error(key, format_args!("is {}, but must be {wanted}", shorten(value)))
    }

    pub fn optional_size(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        // Some writers store whole numbers as floats (`32.0`).
        let number = value.as_u64().or_else(|| {
            value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0).map(|number| number as u64)
        });
        match number.filter(|number| range.contains(number)).map(usize::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            _ => Err(self.wrong_type(key, value, &wanted())),
        }
    }

    pub fn size(&self, key: &str, range: RangeInclusive<u64>) -> Result<usize, ConfigError> {
        self.optional_size(key, range)?.ok_or_else(|| self.missing(key))
    }

    pub fn missing(&self, key: &str) -> ConfigError {
        self.error(key, "is missing")
    }

    /// The value of the first of several spellings of one key; two spellings with different values contradict.
    pub fn size_of_any(&self, keys: &[&str], range: RangeInclusive<u64>) -> Result<Option<usize>, ConfigError> {
        let mut found: Option<(&str, usize)> = None;
        for key in keys {
            let Some(number) = self.optional_size(key, range.clone())? else { continue };
            match found {
                Some((other, before)) if before != number => {
                    return Err(self.error(key, format_args!("is {number}, but `{other}` is {before}")));
                }
                _ => found = found.or(Some((key, number))),
            }
        }
        Ok(found.map(|(_, number)| number))
    }

    /// A finite number.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_f64().filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong_type(key, value, "a number")),
        }
    }

    /// A finite number above zero.
    pub fn optional_positive(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        match self.optional_number(key)? {
            Some(number) if number <= 0.0 => Err(self.error(key, format_args!("is {number}, but must be above zero"))),
            other => Ok(other),
        }
    }

    pub fn positive(&self, key: &str) -> Result<f64, ConfigError> {
        self.optional_positive(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong_type(key, value, "true or false"))
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong_type(key, value, "a string"))
    }

    pub fn list(&self, key: &str) -> Result<Option<&'a [Value]>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        value.as_array().map(|list| Some(list.as_slice())).ok_or_else(|| self.wrong_type(key, value, "a list"))
    }

    pub fn text_list(&self, key: &str) -> Result<Option<Vec<&'a str>>, ConfigError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let texts =
            list.iter().map(|item| item.as_str().ok_or_else(|| self.wrong_type(key, item, "a list of strings")));
        texts.collect::<Result<_, _>>().map(Some)
    }

    pub fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.wrong_type(key, value, "an object"))
    }

    /// Token ids given as one number or as a list; each below `vocabulary`.
    pub fn tokens(&self, key: &str, vocabulary: usize) -> Result<Vec<u32>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let ids = items.iter().map(|item| match item.as_u64() {
            Some(id) if id < vocabulary as u64 => Ok(id as u32),
            Some(id) => {
                Err(self.error(key, format_args!("names token {id}, but the vocabulary has {vocabulary} tokens")))
            }
            None => Err(self.wrong_type(key, item, "a token id or a list of token ids")),
        });
        ids.collect()
    }

    pub fn path(&self) -> &'a str {
        self.path
    }

    pub fn prefix(&self) -> &'a str {
        self.prefix
    }
}

/// A JSON value for an error message, cut to a readable length.
fn shorten(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}
