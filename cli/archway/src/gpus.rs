//! The GPUs of this machine as a group: which they are, how they are joined, what their kernels are compiled for.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use engine::plan::{
    Database, GpuFacts, KernelTarget, Topology, Version, device_record, feature_attributes, kernel_target,
};
use engine_gpu::compile::CompileTarget;
use engine_gpu::doctor::{DeviceReport, Survey, survey};
use engine_gpu::library::Library;
use engine_gpu::measure::{MeasurePlan, Stack};
use engine_gpu::probe::{DEADLINE, Limits, Pair, PeerProbe, handles, pairs, topology};
use serde::Serialize;

use crate::program;

/// How long a measured rank waits for another.
const PATIENCE: Duration = Duration::from_secs(5);
/// Units whose times a tuning holds.
const MEASURED_UNITS: &[&str] = &["allreduce", "allreduce_norm", "norm"];

/// The machine's GPUs, all of one kind, with their record.
pub struct MeasuredGpus {
    pub survey: Survey,
    pub record: String,
    pub target: CompileTarget,
}

impl MeasuredGpus {
    /// Errors: no driver, no GPU, one without a record, or GPUs of several kinds.
    pub fn find(database: &Database) -> Result<Self> {
        let survey = survey(&feature_attributes(database));
        if let Some(problem) = &survey.problem {
            bail!("there is nothing to sum over: {problem}");
        }
        let first = survey.devices.first().context("the driver sees no GPU")?;
        let other = survey.devices.iter().find(|device| device.name != first.name);
        if let Some(other) = other {
            bail!("GPU 0 is {} and GPU {} is {}: name GPUs of one kind", first.name, other.ordinal, other.name);
        }
        let DeviceReport { name, compute_capability, .. } = first;
        let record = device_record(database, name, compute_capability).with_context(|| {
            format!("{name} (compute capability {compute_capability}) has no record; `capdb add-arch` makes one")
        })?;
        let target = compile_target(&kernel_target(database, &record)?)
            .with_context(|| format!("the record {record} names no compiler target"))?;
        Ok(Self { survey, record, target })
    }

    /// The wanted ordinals, or all. Errors: one that is not there, fewer than two, more than sixteen.
    pub fn devices(&self, wanted: &[usize]) -> Result<Vec<usize>> {
        let all: Vec<usize> = self.survey.devices.iter().map(|device| device.ordinal).collect();
        let devices = if wanted.is_empty() { all.clone() } else { wanted.to_vec() };
        for device in &devices {
            ensure!(all.contains(device), "there is no GPU {device}: the driver sees {}", all.len());
        }
        ensure!(devices.len() > 1, "a sum needs two GPUs or more; the driver sees {}", all.len());
        ensure!(devices.len() <= 16, "groups have 16 ranks at most, not {}", devices.len());
        Ok(devices)
    }

    /// `half`: bytes of half a window.
    pub fn plan(&self, devices: Vec<usize>, half: usize) -> MeasurePlan {
        MeasurePlan { devices, target: self.target.clone(), half, patience: PATIENCE, programmatic: true }
    }

    /// What the figures belong to.
    pub fn stack(&self) -> Stack {
        Stack {
            gpu: self.survey.devices.first().map(|device| device.name.clone()).unwrap_or_default(),
            driver: self.survey.driver.clone().unwrap_or_default(),
            nccl: version(&self.survey, Library::Nccl).map(str::to_owned),
        }
    }
}

/// What kernels are compiled for; none where the record names no target.
pub fn compile_target(target: &KernelTarget) -> Option<CompileTarget> {
    let (features, probed) = (target.features.clone(), target.probed.clone());
    Some(CompileTarget { target: target.targets.first()?.clone(), features, probed })
}

/// Names the kernels whose times a tuning holds.
pub fn measured_kernels(target: &CompileTarget) -> String {
    target.digest(MEASURED_UNITS)
}

fn version(survey: &Survey, library: Library) -> Option<&str> {
    let report = survey.libraries.iter().find(|report| report.library == library)?;
    report.found.as_ref().map(|found| found.version.as_str())
}

/// How a group of GPUs is joined, as asked and as tried.
#[derive(Serialize)]
pub struct Joined {
    pub pairs: Vec<Pair>,
    pub topology: Topology,
    pub probe: PeerProbe,
    pub limits: Limits,
}

impl Joined {
    /// Asks the driver, and has a child send bytes from every GPU to every other. Errors: the driver does not answer.
    pub fn ask(ordinals: &[usize]) -> Result<Self> {
        let pairs = pairs(ordinals)?;
        let (topology, probe) = (topology(&pairs), probe_peers(ordinals));
        if let Some(finding) = probe.finding() {
            tracing::warn!("{finding}");
        }
        Ok(Self { topology, pairs, probe, limits: Limits::read() })
    }

    /// The facts for a plan on these GPUs.
    pub fn facts(&self, survey: &Survey, ordinals: &[usize]) -> GpuFacts {
        let parse = |text: Option<&str>| text.and_then(|text| text.parse::<Version>().ok());
        // Where no GPU says that it can, nothing is to be tried; where all do, only an attempt would tell.
        let possible = ordinals.iter().all(|ordinal| handles(*ordinal).multicast);
        let facts = GpuFacts {
            topology: Some(self.topology),
            multicast: (!possible || ordinals.len() < 2).then_some(false),
            p2p_probe: (ordinals.len() > 1).then_some(self.probe == PeerProbe::Ok),
            toolkit: parse(version(survey, Library::Nvrtc)),
            driver: parse(survey.driver.as_deref()),
            nccl: parse(version(survey, Library::Nccl)),
            ..GpuFacts::default()
        };
        facts.read_environment()
    }
}

/// One GPU has no peer to try.
fn probe_peers(ordinals: &[usize]) -> PeerProbe {
    if ordinals.len() < 2 {
        return PeerProbe::Ok;
    }
    let list: Vec<String> = ordinals.iter().map(ToString::to_string).collect();
    match program::again() {
        Ok(mut program) => PeerProbe::run(program.args(["probe-peers", "--devices", &list.join(",")]), DEADLINE),
        Err(error) => PeerProbe::Failed { why: format!("the program does not find itself: {error}") },
    }
}
