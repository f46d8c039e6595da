//! What was measured, before anything is concluded from it.

use std::collections::BTreeSet;

use capdb::quantity::Version;
use capdb::record::{AlgorithmId, Dtype, FusionId, Topology, is_date};
use serde::{Deserialize, Serialize};

/// First word of a recorded measurement.
pub const SCHEMA: &str = "measurement/1";

/// All figures of one machine, with the stack that they belong to. Times are medians in microseconds, the slowest
/// rank's, as a recorded graph of many calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    pub schema: String,
    /// Record of the product or architecture.
    pub record: String,
    /// The driver's name of the device.
    pub gpu: String,
    pub driver: String,
    /// None where NCCL was not there to compare with.
    pub nccl: Option<String>,
    /// Names the kernels that were measured: a hash of their sources and options.
    pub kernels: String,
    /// "2026-11-30".
    pub date: String,
    /// Whether sums in the switch were among what was measured; a ladder without them says nothing of machines that have
    /// multicast.
    #[serde(default)]
    pub multicast: bool,
    /// How it was timed, for the reader.
    pub method: String,
    pub groups: Vec<Group>,
}

/// The figures of one world size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub world_size: u32,
    /// That of the ranks used.
    pub topology: Topology,
    /// How the ranks are joined, in words.
    pub link: String,
    pub sums: Vec<SumPoint>,
    pub norms: Vec<NormPoint>,
}

/// One sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumPoint {
    pub algorithm: AlgorithmId,
    pub dtype: Dtype,
    /// Of a rank's message.
    pub bytes: u64,
    pub microseconds: f64,
    /// Largest less smallest of the rounds.
    pub spread: f64,
}

/// One sum of bf16 with residual and norm after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormPoint {
    pub algorithm: AlgorithmId,
    /// What the fused kernel gives; two kernels give bf16.
    #[serde(default = "plain")]
    pub output: FusionId,
    /// In one kernel; otherwise the sum's kernel and then the norm's.
    pub fused: bool,
    pub rows: u32,
    pub width: u32,
    pub microseconds: f64,
    pub spread: f64,
}

const fn plain() -> FusionId {
    FusionId::ResidualRmsnorm
}

/// Why nothing can be concluded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasurementError {
    #[error("the measurement is {found}, and this program reads {SCHEMA}")]
    Schema { found: String },
    #[error("the measurement holds no figures; measure at least one world size")]
    Empty,
    #[error("{what}: {value} us is not a time")]
    Time { what: String, value: String },
    #[error("world size {0} was measured twice, and nothing says which of the two counts")]
    Twice(u32),
    #[error("a group of {0} ranks sums nothing; world sizes are 2 to 1024")]
    WorldSize(u32),
    #[error("the group of {0} ranks holds no sums; leave it out or measure it again")]
    NoSums(u32),
    #[error("{ranks} ranks: {what} was measured twice, and nothing says which of the two counts; keep one")]
    Repeated { ranks: u32, what: String },
    #[error("`{value}` is not a {what}")]
    Word { what: &'static str, value: String },
    #[error("the record cannot carry the overlay: {0}")]
    Record(String),
    /// The overlay was written and read, and decides otherwise than the measurement: a fault of this program.
    #[error("the overlay does not do what was measured: {0}")]
    Contradiction(String),
}

impl SumPoint {
    fn name(&self) -> String {
        format!("{} of {} bytes of {}", self.algorithm, self.bytes, self.dtype)
    }
}

impl NormPoint {
    fn name(&self) -> String {
        let kernels = if self.fused { "with norm in one kernel" } else { "and norm in two kernels" };
        format!("{} {kernels} ({}), {} x {}", self.algorithm, self.output, self.rows, self.width)
    }

    /// Of a rank's message, in bf16.
    pub fn bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.width) * 2
    }
}

impl Measurement {
    /// Errors: another form, no figures, times that are none, a world size or a figure twice, a date or a driver's
    /// version that is none.
    pub fn check(&self) -> Result<(), MeasurementError> {
        if self.schema != SCHEMA {
            return Err(MeasurementError::Schema { found: self.schema.clone() });
        }
        if self.groups.iter().all(|group| group.sums.is_empty()) {
            return Err(MeasurementError::Empty);
        }
        let word = |what: &'static str, value: &str| Err(MeasurementError::Word { what, value: value.to_owned() });
        if !is_date(&self.date) {
            return word("date such as 2026-11-30", &self.date);
        }
        if self.driver.parse::<Version>().is_err() {
            return word("version of a driver such as 580.159.04", &self.driver);
        }
        for (number, group) in self.groups.iter().enumerate() {
            if !(2..=1024).contains(&group.world_size) {
                return Err(MeasurementError::WorldSize(group.world_size));
            }
            if self.groups[..number].iter().any(|other| other.world_size == group.world_size) {
                return Err(MeasurementError::Twice(group.world_size));
            }
            if group.sums.is_empty() {
                return Err(MeasurementError::NoSums(group.world_size));
            }
            group.check_times()?;
            group.check_repeats()?;
        }
        Ok(())
    }

    /// A measurement with the form that this program writes.
    pub fn schema() -> String {
        SCHEMA.to_owned()
    }
}

impl Group {
    fn check_times(&self) -> Result<(), MeasurementError> {
        let sums = self.sums.iter().map(|sum| (sum.name(), sum.microseconds, sum.spread));
        let norms = self.norms.iter().map(|norm| (norm.name(), norm.microseconds, norm.spread));
        for (what, time, spread) in sums.chain(norms) {
            let what = format!("{} ranks, {what}", self.world_size);
            if !(time.is_finite() && time > 0.0) {
                return Err(MeasurementError::Time { what, value: time.to_string() });
            }
            // More than the longest of the rounds cannot lie between two of them.
            if !(0.0..=1e6 * time).contains(&spread) {
                return Err(MeasurementError::Time { what: format!("{what}, spread"), value: spread.to_string() });
            }
        }
        if self.sums.iter().any(|sum| sum.bytes == 0) || self.norms.iter().any(|norm| norm.bytes() == 0) {
            return Err(MeasurementError::Word { what: "message", value: "0 bytes".to_owned() });
        }
        Ok(())
    }

    fn check_repeats(&self) -> Result<(), MeasurementError> {
        let mut seen = BTreeSet::new();
        let names = self.sums.iter().map(SumPoint::name).chain(self.norms.iter().map(NormPoint::name));
        for what in names {
            if !seen.insert(what.clone()) {
                return Err(MeasurementError::Repeated { ranks: self.world_size, what });
            }
        }
        Ok(())
    }

    /// Largest spread over its time, of all figures.
    pub fn largest_spread(&self) -> f64 {
        let sums = self.sums.iter().map(|sum| sum.spread / sum.microseconds);
        sums.chain(self.norms.iter().map(|norm| norm.spread / norm.microseconds)).fold(0.0, f64::max)
    }
}
