//! GPUs of this machine for a model.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use engine::executor::{LoadProgress, RanksConfig, RanksExecutor};
use engine::model::ModelConfig;
use engine::plan::tuning::TuningReport;
use engine::plan::{
    Database, GpuFacts, KernelTarget, Machine, Plan, Topology, Version, device_record, feature_attributes,
    kernel_target, open_database,
};
use engine_gpu::collective::CollectiveOptions;
use engine_gpu::device::MemoryReport;
use engine_gpu::doctor::{DeviceReport, Survey, survey};
use engine_gpu::library::{Library, require};
use engine_gpu::{CudaOptions, CudaRanks, KernelStore};

use super::tuning;
use crate::cache;
use crate::gpus::Joined;
use crate::settings::Options;

/// Percent of a GPU's memory that may be used without being asked for.
const MOST_UNEXPLAINED: f64 = 3.0;

/// GPUs, one for each rank, with the record that describes them.
pub struct Gpus {
    machine: Machine,
    target: KernelTarget,
    tuning: Option<TuningReport>,
    ordinals: Vec<usize>,
    head_dimension: u32,
    pack: Option<PathBuf>,
}

impl Gpus {
    /// Whether there is a driver at all: what `--device auto` looks at first.
    pub fn present() -> bool {
        require(Library::Driver).is_ok()
    }

    /// Errors: no GPU, one without a record, a library that is missing, a model that this backend cannot compute.
    pub fn find(options: &Options, config: &ModelConfig) -> Result<Self> {
        let head_dimension = head_dimension(config)?;
        let database = open_database(options.capdb.as_deref().map(Path::new))?;
        let survey = survey(&feature_attributes(&database));
        if let Some(problem) = &survey.problem {
            bail!("--device cuda: {problem}");
        }
        let ranks = options.tensor_parallel_size.unwrap_or(1).max(1) as usize;
        ensure!(!survey.devices.is_empty(), "--device cuda: the driver sees no GPU");
        ensure!(
            ranks <= survey.devices.len(),
            "--tensor-parallel-size {ranks}: the driver sees {} GPUs; use fewer ranks, or --device cpu",
            survey.devices.len()
        );
        let devices = &survey.devices[..ranks];
        let record = common_record(&database, devices)?;
        // One rank sums nothing; what was wished for is looked at all the same.
        let (database, file) = tuning::lay(database, options.tuning.as_deref(), (ranks > 1).then_some(&*record))?;
        let (machine, target) = describe(&database, &survey, devices, &record)?;
        let facts = tuning::facts(&survey, &machine, &target, ranks);
        let tuning = file.and_then(|file| TuningReport::new(&database, &file, &machine, &facts));
        require(Library::CublasLt)?;
        let pack = options.kernels.as_deref().map(PathBuf::from);
        Ok(Self { machine, target, tuning, ordinals: ordinals(devices), head_dimension, pack })
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What was measured on this machine, or is said to have been.
    pub fn tuning(&self) -> Option<&TuningReport> {
        self.tuning.as_ref()
    }

    /// Plans are made around `algorithm` from now on, because its self-test failed. False if they are already.
    pub fn strike(&mut self, algorithm: &str) -> bool {
        self.machine.strike(algorithm)
    }

    /// Loads the model on every rank, and says what the memory is used for. Errors: a `SelfTestFailure` where an
    /// algorithm of the plan does not work.
    pub fn start(
        &self,
        config: RanksConfig,
        plan: &Plan,
        progress: impl Fn(LoadProgress) + Send + Sync + 'static,
    ) -> Result<RanksExecutor> {
        let draft = config.speculation.as_ref().map(|own| head_dimension(&own.head.config)).transpose()?;
        let collectives = (self.ordinals.len() > 1).then(|| CollectiveOptions {
            plan: Arc::clone(&config.plan),
            half_window: plan.half_window(),
            hidden: config.model.hidden,
            vocabulary: config.model.vocabulary,
            patience: CollectiveOptions::PATIENCE,
        });
        let ranks = self.ranks(draft, collectives);
        let (memory, group) = (ranks.memory(), ranks.group());
        let executor = RanksExecutor::start(ranks, config, progress).map_err(|error| {
            let failure = group.and_then(|group| group.failure());
            failure.map_or_else(|| error.into(), anyhow::Error::new)
        })?;
        let memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.iter().enumerate().filter_map(|(rank, report)| Some((rank, report.as_ref()?))).for_each(say_memory);
        Ok(executor)
    }

    /// `draft`: the draft model's head dimension.
    fn ranks(&self, draft: Option<u32>, collectives: Option<CollectiveOptions>) -> CudaRanks {
        let head_dimensions = std::iter::once(self.head_dimension).chain(draft).collect();
        let store = KernelStore { pack: self.pack.clone(), cache: cache::folder("kernels").ok() };
        CudaRanks::new(CudaOptions {
            ordinals: self.ordinals.clone(),
            target: self.target.clone(),
            head_dimensions,
            store,
            collectives,
        })
    }
}

/// What a rank's memory is used for, and how much of it nobody asked for.
fn say_memory((rank, report): (usize, &MemoryReport)) {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let MemoryReport { weights, cache, activations, workspace, used, total, passes, milliseconds } = *report;
    let share = 100.0 * report.unexplained() as f64 / total.max(1) as f64;
    eprintln!(
        "GPU memory of rank {rank}: weights {:.2} GiB, cache {:.2}, activations {:.2}, workspace {:.2}; the driver \
         counts {:.2} of {:.2}: {share:.1} % of the memory is modules, recorded passes and rounding; {passes} passes \
         recorded in {milliseconds} ms",
        gib(weights),
        gib(cache),
        gib(activations),
        gib(workspace),
        gib(used),
        gib(total)
    );
    if share > MOST_UNEXPLAINED {
        tracing::warn!(rank, "{share:.1} % of the GPU's memory is used by nothing that was planned");
    }
}

/// The model's head dimension. Errors: a part of the model that this backend cannot compute.
pub fn head_dimension(config: &ModelConfig) -> Result<u32> {
    let unserved = |why| format!("{}: the CUDA backend {why}; use --device cpu", config.architecture);
    engine_gpu::head_dimension(config).map_err(|why| anyhow!(unserved(why)))
}

fn ordinals(devices: &[DeviceReport]) -> Vec<usize> {
    devices.iter().map(|device| device.ordinal).collect()
}

/// The record of all of these GPUs. Errors: GPUs of several kinds, or of one that the database does not know.
fn common_record(database: &Database, devices: &[DeviceReport]) -> Result<String> {
    let records = devices.iter().map(|device| record(database, device)).collect::<Result<Vec<_>>>()?;
    if let Some(at) = records.iter().position(|other| *other != records[0]) {
        let (one, other) = (&devices[0].name, &devices[at].name);
        bail!("GPU 0 is {one}, GPU {at} is {other}: ranks need GPUs of one kind; choose them by CUDA_VISIBLE_DEVICES");
    }
    Ok(records[0].clone())
}

fn record(database: &Database, device: &DeviceReport) -> Result<String> {
    device_record(database, &device.name, &device.compute_capability).with_context(|| {
        format!(
            "the database has no record for {} (compute capability {}); `capdb add-arch` writes one to start from, and \
             --device cpu works meanwhile",
            device.name, device.compute_capability
        )
    })
}

/// The machine for the plan, as the record and the driver know it, and as a probe found it where ranks meet.
fn describe(
    database: &Database,
    survey: &Survey,
    devices: &[DeviceReport],
    record: &str,
) -> Result<(Machine, KernelTarget)> {
    let target = kernel_target(database, record)?;
    ensure!(!target.targets.is_empty(), "record {record} names no compiler target; add `compile` to it");
    let version = |library| require(library).ok().and_then(|found| found.version.parse::<Version>().ok());
    let facts = match devices {
        // One GPU meets no other.
        [_] => GpuFacts {
            topology: Some(Topology::NvlinkMesh),
            multicast: Some(false),
            toolkit: version(Library::Nvrtc),
            driver: survey.driver.as_deref().and_then(|driver| driver.parse().ok()),
            nccl: version(Library::Nccl),
            ..GpuFacts::default()
        },
        several => Joined::ask(&ordinals(several))?.facts(survey, &ordinals(several)),
    };
    let mut machine = Machine::gpu(database, record, devices.len(), &facts)?;
    if let Machine::Gpu(gpu) = &mut machine {
        // The devices' own figure, not the product's.
        gpu.memory = devices.iter().map(|device| device.memory).min();
    }
    Ok((machine, target))
}
