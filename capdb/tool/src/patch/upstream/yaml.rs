//! An import as YAML to take lines from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::import::{Import, NewReading, Stands};
use crate::yaml_text;

impl Import {
    /// YAML to take lines from. Remarks say where a line was read and how it stands to ours.
    pub fn to_text(&self) -> String {
        let mut out = format!("# {} {}, as readings for the database\n", self.project, self.version);
        for untold in &self.untold {
            let _ = writeln!(out, "# cannot tell: {}: {}", untold.feature, untold.why);
        }
        for id in &self.beyond {
            let _ = writeln!(out, "# {id} does not cover {}; its shape fits all the same", self.version);
        }
        out.push_str("sources:\n");
        for (id, source) in &self.sources {
            let (title, path) = (yaml_text::scalar(&source.title), yaml_text::scalar(&source.path));
            let version = Value::from(self.version.as_str());
            let known = if source.known { "  # the database has it" } else { "" };
            let _ = writeln!(
                out,
                "  {id}: {{kind: project, title: {title}, project: {}, version: {version}, path: {path}}}{known}",
                self.project
            );
        }
        out.push_str("readings:\n");
        let mut blocks: BTreeMap<(&str, &str), Vec<&NewReading>> = BTreeMap::new();
        for reading in &self.readings {
            blocks.entry((&reading.file, &reading.block)).or_default().push(reading);
        }
        let mut last = "";
        for ((file, block), readings) in blocks {
            if file != last {
                let _ = writeln!(out, "  {file}:");
                last = file;
            }
            let _ = writeln!(out, "    {block}:");
            for reading in readings {
                let (source, value) = (&reading.source, flow(&reading.value));
                let _ =
                    writeln!(out, "      - {{source: {source}, value: {value}}}  # {}; {}", reading.at, reading.stands);
            }
        }
        out
    }
}

impl std::fmt::Display for Stands {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same { source } => write!(formatter, "the same as {source}"),
            Self::Differs { source, value } => write!(formatter, "{source} says {}", flow(value)),
            Self::OtherKernel => {
                formatter.write_str("for another kernel than ours; the database keeps no reading of it")
            }
            Self::New => formatter.write_str("the database has no reading of it"),
        }
    }
}

/// Flow style with every key that is a number in quotes, as a reading's value has it.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let key = |name: &String| match name.parse::<u32>() {
                Ok(_) => format!("\"{name}\""),
                Err(_) => yaml_text::scalar(name),
            };
            let entries: Vec<String> = map.iter().map(|(name, it)| format!("{}: {}", key(name), flow(it))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => yaml_text::flow(other),
    }
}
