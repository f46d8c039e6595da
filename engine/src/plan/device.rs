//! A GPU that is there: which record describes it, whether the record says what the driver says, and what kernels are
//! built for.

use std::collections::BTreeMap;

use capdb::database::Database;
use capdb::quantity::{Bandwidth, Size, Version};
use capdb::record::Support;
use serde::Serialize;
use serde_json::Value;

use super::error::PlanError;

/// Two figures for the same memory or bandwidth: firmware keeps a little for itself, clocks are rounded.
const TOLERANCE: f64 = 0.03;

/// What a driver says of a device.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceValue {
    /// A count, or bytes.
    Number(u64),
    /// Bytes of memory, or bytes per second: a record may differ a little.
    About(f64),
    Text(String),
    /// A feature.
    Flag(bool),
    /// A version that must be at least the record's.
    AtLeast(String),
}

/// One answer of the driver, at the JSON pointer of the record's field that says the same.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceAnswer {
    pub pointer: String,
    pub value: DeviceValue,
}

/// A record's field beside the driver's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordCheck {
    /// Dotted path in the record.
    pub key: String,
    pub record: String,
    pub driver: String,
    pub agrees: bool,
    /// File and line of the record.
    pub at: String,
}

/// What kernels are compiled for on an architecture, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelTarget {
    /// The record's id.
    pub arch: String,
    /// Compiler targets, the preferred one first; empty where the record names none.
    pub targets: Vec<String>,
    /// Features that a probe of the machine decides on: kernels are compiled for them, and used where the probe says so.
    pub probed: Vec<String>,
    /// Every feature word of the record; true where there is an instruction for it.
    pub features: BTreeMap<String, bool>,
    /// Largest dynamic shared memory of a block in bytes, where the record says it.
    pub shared_memory: Option<u64>,
    /// Registers of a thread, where the record says it.
    pub registers: Option<u32>,
}

/// The record of a device: its product's by the driver's name, else its architecture's by compute capability.
pub fn device_record(database: &Database, name: &str, compute_capability: &str) -> Option<String> {
    let index = database.index();
    let product = index.gpu_by_device_name(name).map(|(id, _)| id);
    product.or_else(|| index.arch_id_of(compute_capability)).map(str::to_owned)
}

/// Every architecture of the database.
pub fn architectures(database: &Database) -> Vec<String> {
    database.index().archs.keys().cloned().collect()
}

/// Feature words that a device attribute answers: word and the driver's name of the attribute.
pub fn feature_attributes(database: &Database) -> Vec<(String, String)> {
    let features = database.index().vocab.features.iter();
    features.filter_map(|(word, feature)| Some((word.clone(), feature.attribute.clone()?))).collect()
}

/// The compiler's options of a record.
pub fn kernel_target(database: &Database, record: &str) -> Result<KernelTarget, PlanError> {
    let resolved = database.record(record)?;
    let (compile, limits) = (resolved.compile()?, resolved.limits()?);
    let features = resolved.features()?;
    let probed = features.iter().filter(|(_, support)| **support == Support::Probe);
    Ok(KernelTarget {
        arch: resolved.arch.clone().unwrap_or_else(|| resolved.id.clone()),
        targets: compile.map(|compile| compile.targets).unwrap_or_default(),
        probed: probed.map(|(word, _)| word.clone()).collect(),
        features: features.iter().map(|(word, support)| (word.clone(), *support == Support::Native)).collect(),
        shared_memory: limits.shared_memory_per_block_optin.map(Size::bytes),
        registers: limits.registers_per_thread,
    })
}

/// Compares what the driver answered with the record. Fields that the record leaves open, and features that only a
/// probe decides, are not compared.
pub fn check_device(
    database: &Database,
    record: &str,
    answers: &[DeviceAnswer],
) -> Result<Vec<RecordCheck>, PlanError> {
    let resolved = database.record(record)?;
    let check = |answer: &DeviceAnswer| {
        let value = resolved.value.pointer(&answer.pointer)?;
        let agrees = agrees(value, &answer.value)?;
        let at = resolved.origin(&answer.pointer).map_or_else(|| "no line".to_owned(), ToString::to_string);
        Some(RecordCheck {
            key: answer.pointer.trim_start_matches('/').replace('/', "."),
            record: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            driver: answer.value.to_string(),
            agrees,
            at,
        })
    };
    Ok(answers.iter().filter_map(check).collect())
}

/// `None` where the two cannot be compared: the record says `probe`.
fn agrees(record: &Value, driver: &DeviceValue) -> Option<bool> {
    match driver {
        DeviceValue::Number(number) => Some(count(record)? == *number),
        DeviceValue::About(driver) => Some((amount(record)? / driver - 1.0).abs() <= TOLERANCE),
        DeviceValue::Text(text) => Some(match record {
            Value::Array(list) => list.iter().any(|value| value.as_str() == Some(text)),
            other => other.as_str() == Some(text),
        }),
        DeviceValue::Flag(flag) => match record.as_str()? {
            "native" | "emulated" => Some(*flag),
            "absent" => Some(!*flag),
            _ => None,
        },
        DeviceValue::AtLeast(text) => {
            let parse = |text: &str| text.parse::<Version>().ok().map(|version| version.parts());
            Some(parse(text)? >= parse(record.as_str()?)?)
        }
    }
}

fn count(record: &Value) -> Option<u64> {
    record.as_u64().or_else(|| record.as_str()?.parse::<Size>().ok().map(Size::bytes))
}

fn amount(record: &Value) -> Option<f64> {
    let bandwidth = || record.as_str()?.parse::<Bandwidth>().ok().map(Bandwidth::bytes_per_second);
    count(record).map(|bytes| bytes as f64).or_else(bandwidth)
}

impl std::fmt::Display for DeviceValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(formatter, "{number}"),
            Self::About(number) => write!(formatter, "{number:.0}"),
            Self::Text(text) | Self::AtLeast(text) => formatter.write_str(text),
            Self::Flag(flag) => write!(formatter, "{flag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pointer: &str, value: DeviceValue) -> DeviceAnswer {
        DeviceAnswer { pointer: pointer.to_owned(), value }
    }

    #[test]
    fn a_device_is_known_by_name_and_else_by_compute_capability() {
        let database = Database::embedded();
        assert_eq!(device_record(&database, "NVIDIA H200", "9.0").as_deref(), Some("h200"));
        assert_eq!(device_record(&database, "NVIDIA H250", "9.0").as_deref(), Some("sm90"));
        assert_eq!(device_record(&database, "NVIDIA X", "15.0"), None);
    }

    #[test]
    fn every_kind_of_difference_is_a_finding() {
        let database = Database::embedded();
        let answers = |right: bool| {
            let pick = |yes: u64, no: u64| if right { yes } else { no };
            let text = |yes: &str, no: &str| if right { yes } else { no }.to_owned();
            vec![
                answer("/multiprocessors", DeviceValue::Number(pick(132, 131))),
                answer("/limits/shared_memory_per_block_optin", DeviceValue::Number(pick(227 * 1024, 1))),
                answer("/memory", DeviceValue::About(pick(150_100_000_000, 80_000_000_000) as f64)),
                answer("/memory_bandwidth", DeviceValue::About(pick(4_814_000_000_000, 3_350_000_000_000) as f64)),
                answer("/compute_capability", DeviceValue::Text(text("9.0", "9.1"))),
                answer("/device_names", DeviceValue::Text(text("NVIDIA H200", "NVIDIA H100"))),
                answer("/features/cooperative_launch", DeviceValue::Flag(right)),
                answer("/compile/min_driver", DeviceValue::AtLeast(text("580.159.04", "515.1"))),
            ]
        };
        let checks = |right| check_device(&database, "h200", &answers(right)).unwrap();
        assert_eq!(checks(true).len(), 8);
        assert!(checks(true).iter().all(|check| check.agrees), "{:?}", checks(true));
        assert!(checks(false).iter().all(|check| !check.agrees), "{:?}", checks(false));
        assert!(checks(false).iter().all(|check| check.at.contains(".yaml:")), "{:?}", checks(false));
    }

    #[test]
    fn what_only_a_probe_decides_is_no_finding() {
        let answers = [answer("/features/multicast", DeviceValue::Flag(false))];
        assert_eq!(check_device(&Database::embedded(), "h200", &answers).unwrap(), []);
    }

    #[test]
    fn kernels_are_built_for_the_records_first_target() {
        let target = kernel_target(&Database::embedded(), "h200").unwrap();
        assert_eq!((target.arch.as_str(), target.targets[0].as_str()), ("sm90", "sm_90a"));
        assert_eq!((target.features["wgmma"], target.features["tcgen05"]), (true, false));
        assert_eq!(target.shared_memory, Some(227 * 1024));
    }
}
