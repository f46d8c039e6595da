//! Whether a tuning file was measured on a machine like the one that reads it.

use std::fmt;
use std::path::Path;

use capdb::database::Database;
use capdb::quantity::Version;
use capdb::record::Topology;
use indexmap::IndexMap;
use serde::Serialize;

use crate::plan::machine::{GpuFacts, Machine};

/// Name of the warning, and under strict of the refusal.
const MISMATCH: &str = "tuning_mismatch";

/// What a fingerprint says of a fact that it does not give.
const UNSAID: &str = "unknown";
/// Beginning of the names of topologies.
const TOPOLOGY: &str = "topology_";

/// What is known of the machine that a plan is for. What is unknown is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// The driver's name of the device.
    pub gpu: Option<String>,
    pub driver: Option<String>,
    /// The library that is loaded.
    pub nccl: Option<String>,
    pub kernels: Option<String>,
    /// Whether multicast memory may be used.
    pub multicast: Option<bool>,
    /// Of this many ranks.
    pub topology: Option<(u32, Topology)>,
}

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub fact: String,
    pub measured: String,
    pub here: String,
}

/// The tuning that a plan rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TuningReport {
    pub file: String,
    /// Record that it is laid over.
    pub applies_to: String,
    pub fingerprint: IndexMap<String, String>,
    /// Empty where the file fits the machine.
    pub differences: Vec<Difference>,
}

impl MachineFacts {
    /// What the user said of a machine that nobody asked, for `ranks` ranks.
    pub fn given(facts: &GpuFacts, ranks: usize) -> Self {
        let text = |version: &Option<Version>| version.as_ref().map(ToString::to_string);
        Self {
            gpu: None,
            driver: text(&facts.driver),
            nccl: text(&facts.nccl),
            kernels: None,
            multicast: facts.multicast,
            topology: facts.topology.and_then(|topology| Some((u32::try_from(ranks).ok()?, topology))),
        }
    }

    /// Each known fact under its name in a fingerprint.
    pub(super) fn entries(&self) -> IndexMap<String, String> {
        let mut entries = IndexMap::new();
        let known = [("gpu", &self.gpu), ("driver", &self.driver), ("nccl", &self.nccl), ("kernels", &self.kernels)];
        for (name, value) in known {
            entries.extend(value.as_ref().map(|value| (name.to_owned(), value.clone())));
        }
        entries.extend(self.multicast.map(|multicast| ("multicast".to_owned(), multicast.to_string())));
        entries.extend(self.topology.map(|(ranks, topology)| (topology_key(ranks), topology.word().to_owned())));
        entries
    }
}

pub(super) fn topology_key(ranks: u32) -> String {
    format!("{TOPOLOGY}{ranks}")
}

/// Whether a driver may call a device of this record so. An architecture may have devices that no product lists.
fn may_be_device_of(database: &Database, name: &str, record: &str) -> bool {
    let index = database.index();
    match index.gpu_by_device_name(name) {
        Some((id, product)) => id == record || product.arch == record,
        None => !index.gpus.contains_key(record),
    }
}

impl TuningReport {
    /// Compares the overlay of a database, read from `file`, with a machine. None where no overlay is laid over the
    /// database, or where the machine has no GPU.
    pub fn new(database: &Database, file: &Path, machine: &Machine, facts: &MachineFacts) -> Option<Self> {
        let Machine::Gpu(gpu) = machine else { return None };
        let (record, arch) = (gpu.resolved.id.as_str(), gpu.resolved.arch.as_deref());
        let overlay = database.overlay()?;
        let difference = |fact: &str, measured: &str, here: &str| Difference {
            fact: fact.to_owned(),
            measured: measured.to_owned(),
            here: here.to_owned(),
        };
        let mut differences = Vec::new();
        if overlay.applies_to != record && Some(overlay.applies_to.as_str()) != arch {
            differences.push(difference("record", &overlay.applies_to, record));
        }
        for (fact, here) in facts.entries() {
            match overlay.fingerprint.get(&fact) {
                Some(measured) if *measured == here => {}
                Some(measured) => differences.push(difference(&fact, measured, &here)),
                // A world size that was not measured changes nothing for this one.
                None if fact.starts_with(TOPOLOGY) => {}
                None => differences.push(difference(&fact, UNSAID, &here)),
            }
        }
        // Where nobody asked a device, the record says which devices it speaks of.
        if facts.gpu.is_none() {
            let measured = overlay.fingerprint.get("gpu");
            let known = measured.is_some_and(|name| may_be_device_of(database, name, record));
            differences.extend((!known).then(|| difference("gpu", measured.map_or(UNSAID, String::as_str), &gpu.name)));
        }
        let (applies_to, fingerprint) = (overlay.applies_to.clone(), overlay.fingerprint.clone());
        Some(Self { file: file.display().to_string(), applies_to, fingerprint, differences })
    }

    /// What does not fit, and what to do.
    pub fn mismatch(&self) -> Option<String> {
        if self.differences.is_empty() {
            return None;
        }
        let differences: Vec<String> = self.differences.iter().map(ToString::to_string).collect();
        Some(format!(
            "{MISMATCH}: {} was measured on another machine than this one: {}; measure again with `archway tune`, or \
             leave it out with --tuning none",
            self.file,
            differences.join(", ")
        ))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} there and {} here", self.fact, self.measured, self.here)
    }
}
