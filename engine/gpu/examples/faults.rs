//! A GPU fault in the middle of serving: what the engine hears, and that it ends.
//!
//! While a model decodes, a kernel that writes to address 0 is launched beside it. The driver then fails every call of
//! the process, and the executor must say so within a second, fatally, and end without a panic. Needs a GPU.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use engine::collective::{CallCounters, CollectivePlan};
use engine::executor::{Capacity, Executor, ExecutorError, RanksConfig, RanksExecutor};
use engine::load::parse_config;
use engine::plan::{Database, device_record, kernel_target};
use engine::types::{Batch, BatchEntry, LogitsRows, PageId, Phase, Sampling, SamplingParams, SlotId};
use engine::weights::DummyWeights;
use engine_gpu::{CudaOptions, CudaRanks, KernelStore};

const CONFIG: &str = include_str!("../../tests/config/llama-tiny.json");
const CONTEXT: u32 = 64;

/// Writes one word to the address that it is given.
const WRITE: &str = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry write(.param .u64 to) {\n.reg .u64 %a;\n\
                     ld.param.u64 %a, [to];\nst.global.u32 [%a], 1;\nret;\n}\n";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("FAILED: {failure}");
            ExitCode::from(1)
        }
    }
}

fn run() -> Result<(), String> {
    let mut executor = start()?;
    for step in 0..4 {
        decode(&mut executor, step).map_err(|error| format!("before the fault: {error}"))?;
    }
    fault()?;
    let start = Instant::now();
    let heard = (4..12).find_map(|step| decode(&mut executor, step).err());
    let heard = heard.ok_or("eight steps after the fault, and no error")?;
    let seconds = start.elapsed().as_secs_f64();
    println!("after {seconds:.3} s: {heard} (fatal: {})", heard.fatal);
    if !heard.fatal || seconds > 1.0 {
        return Err("a fault must be fatal, within a second".to_owned());
    }
    let again = decode(&mut executor, 12).err().ok_or("a step ran after a fatal fault")?;
    println!("the next step: {again}");
    let start = Instant::now();
    drop(executor);
    println!("ended in {:.3} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn fault() -> Result<(), String> {
    let failed = |error: cudarc::driver::DriverError| error.to_string();
    let context = CudaContext::new(0).map_err(failed)?;
    let function = context.load_module(Ptx::from_src(WRITE)).and_then(|module| module.load_function("write"));
    let function = function.map_err(failed)?;
    let stream = context.new_stream().map_err(failed)?;
    let address = 0_u64;
    // SAFETY: none: the fault is what is wanted, and nothing of this process uses the device afterwards.
    let launched = unsafe { stream.launch_builder(&function).arg(&address).launch(LaunchConfig::for_num_elems(1)) };
    launched.map(drop).map_err(failed)
}

fn start() -> Result<RanksExecutor, String> {
    let database = Database::embedded();
    let survey = engine_gpu::doctor::survey(&[]);
    let device = survey.devices.first().ok_or_else(|| survey.problem.clone().unwrap_or_default())?;
    let record = device_record(&database, &device.name, &device.compute_capability).ok_or("no record")?;
    let target = kernel_target(&database, &record).map_err(|error| error.to_string())?;
    let model = parse_config("llama-tiny.json", CONFIG).map_err(|error| error.to_string())?;
    let vocabulary = model.vocabulary as u32;
    let config = RanksConfig {
        capacity: Capacity { pages: 8, page_size: 16, slots: 1, rows: 16, context: CONTEXT, vocabulary },
        model: Arc::new(model),
        weights: Arc::new(DummyWeights::new(0, "bfloat16")),
        logit_rows: 1,
        plan: Arc::new(CollectivePlan::uniform("none")),
        counters: Arc::new(CallCounters::default()),
        step_deadline: Duration::from_secs(20),
        speculation: None,
    };
    let ranks = CudaRanks::new(CudaOptions {
        ordinals: vec![device.ordinal],
        target,
        head_dimensions: vec![16],
        store: KernelStore::default(),
        collectives: None,
    });
    RanksExecutor::start(ranks, config, |_| {}).map_err(|error| error.to_string())
}

/// One token of one sequence.
fn decode(executor: &mut RanksExecutor, step: u64) -> Result<(), ExecutorError> {
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
        phase: Phase::Decode,
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
