//! Measurement → text of a site overlay, read back and asked before anybody gets it.

use std::fmt::Write as _;

use capdb::database::Database;
use capdb::load::TextFile;
use capdb::quantity::{Size, Version};
use capdb::record::{AlgorithmId, Dtype, Fusion, FusionId, Support};

use super::addition::Addition;
use super::conclude::{Fusing, Step, algorithm};
use super::fit::{MachineFacts, topology_key};
use super::measurement::{Group, Measurement, MeasurementError};

/// Its entry in the overlay's own sources.
const SOURCE: &str = "site-tune";

/// What was concluded.
#[derive(Debug)]
pub struct Tuned {
    /// The overlay, in YAML.
    pub text: String,
    /// One line for each ladder and limit, for people.
    pub lines: Vec<String>,
}

/// The limit of what is never to be fused: no message is as small.
const NO_MESSAGE: u64 = 1;

/// Concludes, writes, reads back, and asks the database with the overlay about every size that was measured. Errors: a
/// measurement that is none, a record that is unknown or cannot carry it.
pub fn tune(database: Database, measurement: &Measurement) -> Result<Tuned, MeasurementError> {
    measurement.check()?;
    let record = |error: &dyn std::fmt::Display| MeasurementError::Record(error.to_string());
    let resolved = database.record(&measurement.record).map_err(|error| record(&error))?;
    let allreduce = resolved.allreduce().map_err(|error| record(&error))?;
    let mut rows = resolved.fusions().map_err(|error| record(&error))?;
    let fusible = |fusion: &Fusion| fusion.support.is_some_and(|support| support != Support::Absent);
    let known = FusionId::ALL.iter().filter_map(|id| Some((*id, rows.shift_remove(id.word()).filter(fusible)?)));
    let known: Vec<(FusionId, Fusion)> = known.collect();
    let ids: Vec<FusionId> = known.iter().map(|(id, _)| *id).collect();
    let additions: Vec<Addition<'_>> =
        measurement.groups.iter().map(|group| Addition::new(group, &allreduce, &ids)).collect();
    let text = Writer { measurement, additions: &additions, fusions: &known }.text();
    let file = TextFile {
        path: "the overlay".to_owned(),
        relative: "overlay.yaml".to_owned(),
        bytes: text.clone().into_bytes(),
    };
    let tuned = database.with_overlay(file).map_err(|error| record(&error))?;
    additions.iter().try_for_each(|addition| addition.verify(&tuned, &measurement.record))?;
    Ok(Tuned { text, lines: additions.iter().flat_map(Addition::lines).collect() })
}

struct Writer<'a> {
    measurement: &'a Measurement,
    additions: &'a [Addition<'a>],
    /// The record's own rows of the fused kernels.
    fusions: &'a [(FusionId, Fusion)],
}

impl Writer<'_> {
    fn text(&self) -> String {
        let mut text = String::from(
            "# Measured by `archway tune` on one machine, and laid over the database there. Measure again when GPUs, driver\n\
             # or NCCL change: a start compares the fingerprint, and says what differs.\n",
        );
        let Measurement { record, .. } = self.measurement;
        let _ = write!(text, "schema: overlay/1\napplies_to: {}\n", quoted(record));
        self.fingerprint(&mut text);
        self.source(&mut text);
        self.allreduce(&mut text);
        self.fusions(&mut text);
        text
    }

    fn fingerprint(&self, text: &mut String) {
        let Measurement { gpu, driver, nccl, kernels, multicast, .. } = self.measurement;
        let facts = MachineFacts {
            gpu: Some(gpu.clone()),
            driver: Some(driver.clone()),
            nccl: nccl.clone(),
            kernels: Some(kernels.clone()),
            multicast: Some(*multicast),
            topology: None,
        };
        let topologies = self.measurement.groups.iter();
        let topologies = topologies.map(|group| (topology_key(group.world_size), group.topology.word().to_owned()));
        text.push_str("fingerprint:\n");
        for (name, value) in facts.entries().into_iter().chain(topologies) {
            let _ = writeln!(text, "  {name}: {}", quoted(&value));
        }
    }

    fn source(&self, text: &mut String) {
        let Measurement { gpu, date, method, groups, .. } = self.measurement;
        let most = groups.iter().map(|group| group.world_size).max().unwrap_or(0);
        let links: Vec<String> =
            groups.iter().map(|group| format!("{} ranks: {}", group.world_size, group.link)).collect();
        let _ = write!(
            text,
            "sources:\n  {SOURCE}:\n    kind: measurement\n    title: {}\n    gpu: {}\n{}    date: {}\n    note: {}\n",
            quoted(&format!("archway tune on {most}x {gpu}")),
            quoted(&format!("{most}x {gpu}")),
            self.versions().iter().map(|(name, version)| format!("    {name}: \"{version}\"\n")).collect::<String>(),
            quoted(date),
            quoted(&format!("{method}; {}", links.join("; "))),
        );
    }

    /// Driver and NCCL, where they are versions.
    fn versions(&self) -> Vec<(&'static str, Version)> {
        let Measurement { driver, nccl, .. } = self.measurement;
        let version = |name, text: &str| Some((name, text.parse::<Version>().ok()?));
        [version("driver", driver), nccl.as_ref().and_then(|nccl| version("nccl", nccl))]
            .into_iter()
            .flatten()
            .collect()
    }

    fn evidence(&self, kernel: &str, note: &str) -> String {
        let versions: String =
            self.versions().iter().map(|(name, version)| format!(", {name}: \"{version}\"")).collect();
        format!(
            "{{kind: measured, source: {SOURCE}, kernel: {}{versions}, date: {}, note: {}}}",
            quoted(kernel),
            quoted(&self.measurement.date),
            quoted(note)
        )
    }

    fn allreduce(&self, text: &mut String) {
        text.push_str("allreduce:\n");
        let caps = limits(self.additions.iter().map(|addition| (addition.group, addition.cap)));
        if !caps.is_empty() {
            text.push_str("  symmetric_memory:\n");
            self.limits(text, &caps, "two_shot", "the largest message that was measured");
        }
        text.push_str("  preferred:\n");
        for Addition { group, ladders, fused, .. } in self.additions {
            for (dtype, steps) in ladders {
                let Group { world_size, topology, .. } = group;
                let fused = if *dtype == Dtype::Bf16 && !fused.is_empty() {
                    format!("      fused: [{}]\n", rungs(fused))
                } else {
                    String::new()
                };
                let times = times(group, *dtype, steps);
                let note = format!("spread up to {:.1} % of a time", 100.0 * group.largest_spread());
                let _ = write!(
                    text,
                    "    - world_size: {world_size}\n      topology: {topology}\n      dtype: {dtype}\n      ladder: [{}]\n{fused}      \
                     times: [{}]\n      evidence: {}\n",
                    rungs(steps),
                    times.join(", "),
                    self.evidence(&kernels(steps), &note)
                );
            }
        }
    }

    fn fusions(&self, text: &mut String) {
        let begin = text.len();
        self.fusions.iter().for_each(|(id, own)| self.fusion(text, *id, own));
        if text.len() > begin {
            text.insert_str(begin, "fusions:\n");
        }
    }

    fn fusion(&self, text: &mut String, id: FusionId, own: &Fusion) {
        let listed = |group: &Group| own.world_sizes.as_ref().is_none_or(|sizes| sizes.contains(&group.world_size));
        let concluded = |addition: &Addition<'_>| addition.fusing.iter().find(|(of, _)| *of == id).map(|(_, own)| *own);
        let limit = |addition: &Addition<'_>| match concluded(addition)? {
            Fusing::UpTo(limit) => Some(limit),
            Fusing::Never(_) if listed(addition.group) => Some(NO_MESSAGE),
            Fusing::Never(_) | Fusing::Unmeasured => None,
        };
        let limits = limits(self.additions.iter().map(|addition| (addition.group, limit(addition))));
        if limits.is_empty() {
            return;
        }
        let paying: Vec<&Group> =
            limits.iter().filter(|(_, limit)| *limit > NO_MESSAGE).map(|(group, _)| *group).collect();
        let _ = writeln!(text, "  {id}:");
        let note = match id {
            FusionId::ResidualRmsnorm => "residual and norm in the sum's kernel against a kernel each, bf16",
            _ => "all in the sum's kernel against a kernel each for sum and norm, without the quantising",
        };
        let values = replaced(own, &paying);
        for (name, value) in &values {
            let _ = writeln!(text, "    {name}: {value}");
        }
        self.limits(text, &limits, "one_shot, two_shot", note);
        for (name, _) in &values {
            let _ = writeln!(text, "      {name}: {}", self.evidence("one_shot, two_shot", note));
        }
    }

    /// `max_message` with evidence for each of its keys, as the last keys of a block.
    fn limits(&self, text: &mut String, limits: &[(&Group, u64)], kernel: &str, note: &str) {
        let sizes: Vec<String> =
            limits.iter().map(|(group, bytes)| format!("{}: {}", group.world_size, size(*bytes))).collect();
        let _ = write!(text, "    max_message: {{{}}}\n    evidence_for:\n", sizes.join(", "));
        for (group, _) in limits {
            let _ = writeln!(text, "      max_message.{}: {}", group.world_size, self.evidence(kernel, note));
        }
    }
}

/// What the overlay says of a fused kernel beside its limit: the groups `paying` run it, whatever the record says.
fn replaced(own: &Fusion, paying: &[&Group]) -> Vec<(&'static str, String)> {
    // A kernel that was compared and timed runs here, whatever the record only guessed.
    let support = own.support.filter(|support| *support == Support::Emulated).unwrap_or(Support::Native);
    let mut values = vec![("support", support.to_string())];
    // A list replaces the record's, so what it said stays in it.
    if let Some(mut sizes) = own.world_sizes.clone() {
        let known = sizes.len();
        sizes.extend(
            paying.iter().map(|group| group.world_size).filter(|size| !sizes.contains(size)).collect::<Vec<_>>(),
        );
        sizes.sort_unstable();
        values.extend((sizes.len() > known).then(|| ("world_sizes", format!("[{}]", join(&sizes)))));
    }
    if let Some(mut topologies) = own.topologies.clone() {
        let known = topologies.len();
        for group in paying {
            if !topologies.contains(&group.topology) {
                topologies.push(group.topology);
            }
        }
        values.extend((topologies.len() > known).then(|| ("topologies", format!("[{}]", join(&topologies)))));
    }
    values
}

/// Largest message whose time is written: steps of a few tokens send no more.
const LARGEST_TIMED: u64 = 1 << 20;

/// What the ladder's choice took at each size.
fn times(group: &Group, dtype: Dtype, steps: &[Step]) -> Vec<String> {
    let mut sums: Vec<_> = group
        .sums
        .iter()
        .filter(|sum| sum.dtype == dtype && sum.bytes <= LARGEST_TIMED)
        .filter(|sum| algorithm(steps, sum.bytes) == Some(sum.algorithm))
        .collect();
    sums.sort_by_key(|sum| sum.bytes);
    sums.dedup_by_key(|sum| sum.bytes);
    let shown = |microseconds: f64| (microseconds * 1e3).round().clamp(1.0, f64::from(u32::MAX));
    sums.iter().map(|sum| format!("{{bytes: {}, nanoseconds: {}}}", size(sum.bytes), shown(sum.microseconds))).collect()
}

/// As a record writes them.
fn rungs(steps: &[Step]) -> String {
    join(
        &steps
            .iter()
            .map(|step| format!("{{up_to: {}, use: {}}}", size(step.up_to), step.algorithm))
            .collect::<Vec<_>>(),
    )
}

fn limits<'a>(of: impl Iterator<Item = (&'a Group, Option<u64>)>) -> Vec<(&'a Group, u64)> {
    of.filter_map(|(group, limit)| Some((group, limit?))).collect()
}

/// Kernels of a ladder, each once.
fn kernels(steps: &[Step]) -> String {
    let mut names: Vec<AlgorithmId> = Vec::new();
    for step in steps {
        if !names.contains(&step.algorithm) {
            names.push(step.algorithm);
        }
    }
    join(&names)
}

fn join<T: std::fmt::Display>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// As a record writes it.
pub(super) fn size(bytes: u64) -> String {
    Size::from_bytes(bytes).map_or_else(|_| bytes.to_string(), |size| size.to_string())
}

/// A YAML string in double quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => quoted.push(' '),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
