//! Which layer a value came from: flag, file or default.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::bounds;
use super::defaults::defaults;
use super::file;
use super::options::Options;

/// Who set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag,
    /// The file and the line of the key.
    File {
        path: String,
        line: u64,
    },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Flag => formatter.write_str("flag"),
            Self::File { path, line } => write!(formatter, "{path}:{line}"),
            Self::Default => formatter.write_str("default"),
        }
    }
}

/// The settings in force.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub options: Options,
    origins: Vec<(String, Origin)>,
}

/// Lays flags over the file over the defaults.
pub fn resolve(flags: &Options, path: Option<&Path>) -> Result<Resolved> {
    // A number that is none has no place in a layer.
    bounds::check(flags, |_| Some(Origin::Flag))?;
    let mut values = Map::new();
    let mut origins: Vec<(String, Origin)> = Vec::new();
    let mut lay = |layer: Map<String, Value>, origin: &dyn Fn(&str) -> Origin| {
        for (key, value) in layer {
            origins.retain(|(other, _)| *other != key);
            origins.push((key.clone(), origin(&key)));
            values.insert(key, value);
        }
    };
    lay(to_map(&defaults())?, &|_| Origin::Default);
    if let Some(path) = path {
        let (options, lines) = file::read(path)?;
        let place = |key: &str| {
            let line = lines.iter().find(|(name, _)| name == key).map_or(0, |(_, line)| *line);
            Origin::File { path: path.display().to_string(), line }
        };
        lay(to_map(&options)?, &place);
    }
    lay(to_map(flags)?, &|_| Origin::Flag);
    let options: Options =
        serde_json::from_value(Value::Object(values)).context("the layers of settings do not fit together")?;
    let resolved = Resolved { options, origins };
    bounds::check(&resolved.options, |key| resolved.origin(key).cloned())?;
    Ok(resolved)
}

/// The keys that are set.
/// The keys that are set.
pub(super) fn to_map(options: &Options) -> Result<Map<String, Value>> {
    match serde_json::to_value(options)? {
        Value::Object(map) => Ok(map.into_iter().filter(|(_, value)| !value.is_null()).collect()),
        _ => Ok(Map::new()),
    }
}

impl Resolved {
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.origins.iter().find(|(name, _)| name == key).map(|(_, origin)| origin)
    }

    /// Every key that is set, with its value and origin. Keys of clients are counted, not shown.
    pub fn report(&self) -> Value {
        let values = to_map(&self.options).unwrap_or_default();
        let entry = |(key, value): (String, Value)| {
            let value = match (key.as_str(), &value) {
                ("api-key", Value::Array(keys)) => json!(format!("{} hidden", keys.len())),
                _ => value,
            };
            let origin = self.origin(&key).map(Origin::to_string);
            (key, json!({"value": value, "origin": origin}))
        };
        Value::Object(values.into_iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn flags_go_before_the_file_and_the_file_before_defaults() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# a comment\nport: 9000\ncontext-length: 8k\napi-key: [a, b]\nmax_num_seqs: 8").unwrap();
        let flags = Options { port: Some(9001), ..Options::default() };
        let resolved = resolve(&flags, Some(file.path())).unwrap();
        let report = resolved.report();
        let path = file.path().display();
        assert_eq!(report["port"], json!({"value": 9001, "origin": "flag"}));
        assert_eq!(report["max-model-len"], json!({"value": 8000, "origin": format!("{path}:3")}));
        assert_eq!(report["api-key"], json!({"value": "2 hidden", "origin": format!("{path}:4")}));
        assert_eq!(report["max-num-seqs"], json!({"value": 8, "origin": format!("{path}:5")}));
        assert_eq!(report["host"], json!({"value": "127.0.0.1", "origin": "default"}));
        assert_eq!(report.get("tokenizer"), None);
    }
}
