//! A small model that decodes one sequence.

use std::sync::Arc;
use std::time::Duration;

use engine::collective::{CallCounters, CollectivePlan};
use engine::executor::{Capacity, Executor, ExecutorError, RankFactory, RanksConfig, RanksExecutor};
use engine::load::parse_config;
use engine::plan::{AllReduceChoice, Database, GpuFacts, KernelTarget, Machine, PlanRequest, Topology};
use engine::plan::{device_record, kernel_target};
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId};
use engine::weights::DummyWeights;
use engine_gpu::collective::CollectiveOptions;
use engine_gpu::{CudaOptions, CudaRanks, KernelStore};

const CONFIG: &str = include_str!("../../../tests/config/llama-tiny.json");
const CONTEXT: u32 = 64;

/// The record of the first GPU, and what its kernels are compiled for.
pub fn target() -> Result<(String, KernelTarget), String> {
    let database = Database::embedded();
    let survey = engine_gpu::doctor::survey(&[]);
    let device = survey.devices.first().ok_or_else(|| survey.problem.clone().unwrap_or_default())?;
    let record = device_record(&database, &device.name, &device.compute_capability).ok_or("no record")?;
    let target = kernel_target(&database, &record).map_err(|error| error.to_string())?;
    Ok((record, target))
}

/// On the first GPU.
pub fn single() -> Result<RanksExecutor, String> {
    let options = CudaOptions {
        ordinals: vec![0],
        target: target()?.1,
        head_dimensions: vec![16],
        store: KernelStore::default(),
        collectives: None,
    };
    start(CudaRanks::new(options), CollectivePlan::uniform("none"))
}

/// The first two GPUs, and what the plan says of their sums.
pub fn pair(allreduce: AllReduceChoice) -> Result<(CudaRanks, CollectivePlan), String> {
    let (record, target) = target()?;
    let model = parse_config("llama-tiny.json", CONFIG).map_err(|error| error.to_string())?;
    let facts = GpuFacts { topology: Some(Topology::NvlinkMesh), multicast: Some(false), ..GpuFacts::default() };
    let machine = Machine::gpu(&Database::embedded(), &record, 2, &facts).map_err(|error| error.to_string())?;
    let (hidden, vocabulary) = (model.hidden, model.vocabulary);
    let request = PlanRequest {
        tensor_parallel: 2,
        allreduce,
        allreduce_prefill: allreduce,
        max_rows: 16,
        max_sequences: 1,
        context: Some(CONTEXT as usize),
        ..PlanRequest::new("llama-tiny", model, machine)
    };
    let plan = engine::plan::build(&request).map_err(|error| error.to_string())?;
    let collectives = CollectiveOptions {
        plan: Arc::new(plan.collectives()),
        half_window: plan.half_window(),
        hidden,
        vocabulary,
        patience: CollectiveOptions::PATIENCE,
    };
    let options = CudaOptions {
        ordinals: vec![0, 1],
        target,
        head_dimensions: vec![16],
        store: KernelStore { cache: Some(std::env::temp_dir().join("archway-kernels")), pack: None },
        collectives: Some(collectives),
    };
    Ok((CudaRanks::new(options), plan.collectives()))
}

pub fn start<F: RankFactory>(ranks: F, plan: CollectivePlan) -> Result<RanksExecutor, String> {
    let model = parse_config("llama-tiny.json", CONFIG).map_err(|error| error.to_string())?;
    let vocabulary = model.vocabulary as u32;
    let config = RanksConfig {
        capacity: Capacity { pages: 8, page_size: 16, slots: 1, rows: 16, context: CONTEXT, vocabulary },
        model: Arc::new(model),
        weights: Arc::new(DummyWeights::new(0, "bfloat16")),
        logit_rows: 1,
        plan: Arc::new(plan),
        counters: Arc::new(CallCounters::default()),
        step_deadline: Duration::from_secs(20),
        speculation: None,
    };
    RanksExecutor::start(ranks, config, |_| {}).map_err(|error| error.to_string())
}

/// One token of one sequence.
pub fn decode(executor: &mut RanksExecutor, step: u64) -> Result<(), ExecutorError> {
    one(executor, step, Phase::Decode)
}

/// The same as a pass that is not recorded.
pub fn prefill(executor: &mut RanksExecutor, step: u64) -> Result<(), ExecutorError> {
    one(executor, step, Phase::Prefill)
}

fn one(executor: &mut RanksExecutor, step: u64, phase: Phase) -> Result<(), ExecutorError> {
    let start = step as u32;
    let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let sampling = Sampling {
        params: Arc::new(params),
        prompt: Arc::from([1]),
        output: Vec::new(),
        choice: 0,
        end_tokens: Arc::from([]),
    };
    let entry = BatchEntry {
        slot: SlotId(0),
        phase,
        tokens: vec![1],
        start,
        pages: (0..=start / 16).map(PageId).collect(),
        verify_tokens: 0,
        logits: LogitsRows::Last,
        sample: true,
        begin: (step == 0).then_some(sampling),
    };
    executor.submit(Batch { step, entries: vec![entry], retired: Vec::new() })?;
    executor.collect().map(drop)
}
