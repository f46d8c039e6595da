//! What a database holds, in short.

use std::collections::BTreeMap;

use capdb::database::Database;
use capdb::record::EvidenceKind;
use serde_json::{Value, json};

/// Every architecture and product.
#[derive(Clone, Debug)]
pub struct Listing {
    archs: Vec<Row>,
    gpus: Vec<Row>,
    data_version: String,
}

#[derive(Clone, Debug)]
struct Row {
    id: String,
    name: String,
    /// Capability of an architecture, architecture of a product.
    of: String,
    extends: Option<String>,
    aliases: Vec<String>,
    /// Usual topology of a product.
    topology: Option<&'static str>,
    /// How many values that steer rest on which kind of evidence.
    evidence: BTreeMap<&'static str, usize>,
}

impl Listing {
    pub fn of(database: &Database) -> Self {
        let index = database.index();
        let archs = index.archs.iter().map(|(id, entry)| Row {
            id: id.clone(),
            name: entry.name.clone(),
            of: entry.compute_capability.clone(),
            extends: entry.extends.clone(),
            aliases: entry.aliases.iter().map(|alias| alias.name.clone()).collect(),
            topology: None,
            evidence: evidence(database, id),
        });
        let gpus = index.gpus.iter().map(|(id, entry)| Row {
            id: id.clone(),
            name: entry.name.clone(),
            of: entry.arch.clone(),
            extends: None,
            aliases: entry.device_names.clone(),
            topology: Some(entry.usual_topology.word()),
            evidence: evidence(database, id),
        });
        Self { archs: archs.collect(), gpus: gpus.collect(), data_version: index.manifest.data_version.to_string() }
    }

    pub fn to_json(&self) -> Value {
        let arch = |row: &Row| {
            let products: Vec<&str> =
                self.gpus.iter().filter(|gpu| gpu.of == row.id).map(|gpu| gpu.id.as_str()).collect();
            json!({
                "id": row.id, "name": row.name, "compute_capability": row.of, "extends": row.extends,
                "aliases": row.aliases, "gpus": products, "evidence": row.evidence,
            })
        };
        let gpu = |row: &Row| {
            json!({
                "id": row.id, "name": row.name, "arch": row.of, "device_names": row.aliases,
                "usual_topology": row.topology, "evidence": row.evidence,
            })
        };
        json!({
            "data_version": self.data_version,
            "archs": self.archs.iter().map(arch).collect::<Vec<_>>(),
            "gpus": self.gpus.iter().map(gpu).collect::<Vec<_>>(),
        })
    }

    pub fn to_text(&self) -> String {
        let mut archs = vec![["ARCH", "CAPABILITY", "EXTENDS", "EVIDENCE OF ITS VALUES", "NAME"].map(str::to_owned)];
        archs.extend(self.archs.iter().map(|row| {
            let extends = row.extends.clone().unwrap_or_else(|| "-".into());
            [row.id.clone(), row.of.clone(), extends, counts(&row.evidence), row.name.clone()]
        }));
        let mut gpus = vec![["GPU", "ARCH", "TOPOLOGY", "EVIDENCE OF ITS VALUES", "NAME"].map(str::to_owned)];
        gpus.extend(self.gpus.iter().map(|row| {
            let topology = row.topology.unwrap_or("-").to_owned();
            [row.id.clone(), row.of.clone(), topology, counts(&row.evidence), row.name.clone()]
        }));
        format!("{}\n{}", table(&archs), table(&gpus))
    }
}

fn evidence(database: &Database, id: &str) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let Ok(resolved) = database.record(id) else { return counts };
    let steering = |pointer: &str| ["/allreduce/", "/fusions/"].iter().any(|block| pointer.starts_with(block));
    let about = |pointer: &str| ["/evidence/", "/evidence_for/", "/readings"].iter().any(|part| pointer.contains(part));
    for (_, origin) in resolved.origins.iter().filter(|(pointer, _)| steering(pointer) && !about(pointer)) {
        *counts.entry(origin.kind().word()).or_insert(0) += 1;
    }
    counts
}

/// `12 upstream, 3 guessed`, in the order of the closed list.
fn counts(evidence: &BTreeMap<&'static str, usize>) -> String {
    let parts: Vec<String> = EvidenceKind::ALL
        .iter()
        .filter_map(|kind| evidence.get(kind.word()).map(|count| format!("{count} {kind}")))
        .collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}

fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
