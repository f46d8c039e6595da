//! The settings file: YAML, strict, with the same keys as the flags.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use engine::files::read_bounded;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::options::Options;
use super::spellings::{self, Meaning};
use engine_server::similar;
use engine_server::words::in_words;

/// Largest file that is read.
const LARGEST: u64 = 1 << 20;

/// Keys as they stand in the file, with line and value.
struct Entries(Vec<(String, u64, Value)>);

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a mapping of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            entries.push((key.value, key.defined.line(), map.next_value()?));
        }
        Ok(Entries(entries))
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Reads a file: the settings, and the line of each key under its own name.
pub fn read(path: &Path) -> Result<(Options, Vec<(String, u64)>)> {
    let name = path.display();
    let bytes = read_bounded(path, LARGEST).with_context(|| format!("{name} cannot be read"))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{name} is not a settings file"))?;
    parse(&name.to_string(), &text)
}

fn parse(name: &str, text: &str) -> Result<(Options, Vec<(String, u64)>)> {
    let entries = if is_blank(text) { Entries(Vec::new()) } else { yaml(name, text)? };
    let (mut values, mut lines, mut seen) = (Map::new(), Vec::new(), HashSet::new());
    for (key, line, value) in entries.0 {
        let place = format!("{name}:{line}");
        let (key, value) = canonical(&place, &key, value)?;
        if !seen.insert(key.clone()) {
            bail!("{place}: `{key}` is set twice in this file (under two spellings)");
        }
        // One key at a time, so that an error knows its line.
        check(&place, &key, &value)?;
        lines.push((key.clone(), line));
        values.insert(key, value);
    }
    Ok((serde_json::from_value(Value::Object(values))?, lines))
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn yaml(name: &str, text: &str) -> Result<Entries> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_nodes: 10_000, max_depth: 16 },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| refusal(name, error.without_snippet()))
}

/// What the reader refuses, without its advice to programmers.
fn refusal(name: &str, error: &Error) -> anyhow::Error {
    let place = error.location().map_or(name.to_owned(), |at| format!("{name}:{}", at.line()));
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => anyhow!("{place}: `{key}` is set twice in this file"),
        Error::Unexpected { expected: "mapping start", .. } => anyhow!("{place}: expected lines of `key: value`"),
        Error::MultipleDocuments { .. } => anyhow!("{place}: a second document begins here; a settings file has one"),
        Error::Budget { breach: BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. }, .. } => {
            anyhow!("{place}: anchors and aliases are not read; write the value itself")
        }
        Error::Budget { .. } => anyhow!("{place}: more or deeper values than any settings file has"),
        _ => anyhow!("{place}: {}", UserMessageFormatter.format_message(error)),
    }
}

/// The canonical key and value of a spelling.
fn canonical(place: &str, key: &str, value: Value) -> Result<(String, Value)> {
    let spelled = key.replace('_', "-");
    match spellings::meaning(&spelled) {
        Some(Meaning::Key(key)) => Ok((key, value)),
        Some(Meaning::Toggle { key, set }) => match value {
            Value::Bool(true) => Ok((key, set)),
            Value::Bool(false) => {
                bail!("{place}: `{spelled}: false` says nothing; leave it out, or set `{key}` itself")
            }
            _ => bail!("{place}: `{spelled}` must be true; or set `{key}` itself"),
        },
        Some(Meaning::Foreign(why)) => bail!("{place}: `{spelled}` is not supported: {why}"),
        Some(Meaning::Idle(why)) => bail!("{place}: `{spelled}` has no effect here: {why}; leave it out"),
        None => {
            let hint = match similar::nearest(&spelled, spellings::names().iter().map(String::as_str)) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => "; `archway config schema` prints all keys".to_owned(),
            };
            bail!("{place}: unknown key `{key}`{hint}")
        }
    }
}

fn check(place: &str, key: &str, value: &Value) -> Result<()> {
    if value.is_null() {
        bail!("{place}: `{key}` has no value; give one or remove the line");
    }
    let alone = Map::from_iter([(key.to_owned(), value.clone())]);
    let read = serde_json::from_value::<Options>(Value::Object(alone));
    read.map(|_| ()).map_err(|error| anyhow!("{place}: `{key}`: {}", in_words(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(text: &str) -> String {
        parse("s.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn keys_of_both_servers_are_understood() {
        let text = "tp-size: 2\nmax_running_requests: 4\ndisable-radix-cache: true\nkv-cache-memory-bytes: 2GiB\n";
        let (options, lines) = parse("s.yaml", text).unwrap();
        assert_eq!((options.tensor_parallel_size, options.max_num_seqs), (Some(2), Some(4)));
        assert_eq!(options.enable_prefix_caching, Some(false));
        assert_eq!(lines[2], ("enable-prefix-caching".to_owned(), 3));
        assert_eq!(parse("s.yaml", "# nothing\n\n").unwrap().0, Options::default());
    }

    #[test]
    fn errors_say_where_and_what_to_do() {
        assert_eq!(refuse("port: 1\nprot: 2"), "s.yaml:2: unknown key `prot`; did you mean `port`?");
        let port = "s.yaml:1: `port`: invalid type: string \"many\", expected a whole number from 0 to 65535";
        assert_eq!(refuse("port: many"), port);
        assert!(refuse("tp: 1\ntp-size: 2").contains("is set twice"));
        assert_eq!(refuse("port: 1\nport: 2"), "s.yaml:2: `port` is set twice in this file");
        assert_eq!(refuse("port: 1\n---\nport: 2"), "s.yaml:3: a second document begins here; a settings file has one");
        assert_eq!(refuse("port: &x 1"), "s.yaml:1: anchors and aliases are not read; write the value itself");
        assert!(refuse("strict: yes").contains("`strict`: invalid type"));
        assert!(refuse("port:").contains("has no value"));
        assert!(refuse("a: &x 1\nb: *x").starts_with("s.yaml"));
        assert_eq!(refuse("- port"), "s.yaml:1: expected lines of `key: value`");
        assert!(refuse("enable-lora: true").contains("is not supported"));
        assert!(refuse("max-message: 64MB").contains("write MiB"));
    }
}
