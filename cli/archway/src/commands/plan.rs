//! `archway plan`: what would run where, and why, without the machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use engine::load::read_config;
use engine::model::ModelConfig;
use engine::plan::tuning::{MachineFacts, TuningReport};
use engine::plan::{
    DraftReport, GpuFacts, Machine, Plan, PlanRequest, PlanVerdict, SpeculationShape, Topology, Version, open_database,
};
use engine_cpu::map_file;

use crate::loader;
use crate::settings::{Bytes, Options, resolve};

/// Draft tokens of most published heads.
const DRAFT_VOCABULARY: usize = 32000;
/// Weights of a draft model, in bytes.
const LARGEST_DRAFT: u64 = 1 << 44;

/// Plan a model on GPUs that nobody needs to own, or on this CPU.
///
/// Exit code 0: planned. 2: refused, or out of memory; the plan says why. So it checks a deployment in CI.
#[derive(Args)]
pub struct Arguments {
    /// Model: a folder in Hugging Face layout, a .gguf file, or a config.json.
    #[arg(value_name = "MODEL", id = "model_path_argument")]
    model: Option<String>,
    /// Product of the database, e.g. h200 or rtx-pro-6000. Default: this machine's CPU.
    #[arg(long, value_name = "ID", help_heading = "Machine")]
    gpu: Option<String>,
    /// GPUs of the machine. Default: one for each rank.
    #[arg(long, value_name = "COUNT", help_heading = "Machine")]
    count: Option<usize>,
    /// How the GPUs are connected. Default: the product's usual way.
    #[arg(long, value_name = "TOPOLOGY", requires = "gpu", help_heading = "Machine")]
    topology: Option<Topology>,
    /// Whether multicast memory works. Default: as in the product's usual machine.
    #[arg(long, value_name = "true|false", requires = "gpu", help_heading = "Machine")]
    multicast: Option<bool>,
    /// Machines that the ranks are spread over.
    #[arg(long, value_name = "COUNT", requires = "gpu", help_heading = "Machine")]
    nodes: Option<u32>,
    /// CUDA toolkit, e.g. 13.0.
    #[arg(long, value_name = "VERSION", requires = "gpu", help_heading = "Machine")]
    toolkit: Option<Version>,
    /// NVIDIA driver, e.g. 580.65.06.
    #[arg(long, value_name = "VERSION", requires = "gpu", help_heading = "Machine")]
    driver: Option<Version>,
    /// NCCL, e.g. 2.27.7.
    #[arg(long, value_name = "VERSION", requires = "gpu", help_heading = "Machine")]
    nccl: Option<Version>,
    /// Hidden size of a draft model that is planned without its files. Default: the model's.
    #[arg(long, value_name = "SIZE", value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = "Speculation")]
    draft_hidden: Option<u32>,
    /// Weights of a draft model that is planned without its files.
    #[arg(long, value_name = "SIZE", help_heading = "Speculation")]
    draft_size: Option<Bytes>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Settings file of `archway serve`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let plan = plan(arguments)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&plan)?);
    } else {
        println!("{plan}");
    }
    Ok(if plan.verdict == PlanVerdict::Refused { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let mut options = resolve(&arguments.options, arguments.config.as_deref())?.options;
    options.model = arguments.model.clone().or(options.model);
    let model = options.model.as_deref().context("no model is given; name a folder, a .gguf file or a config.json")?;
    let mut config = read_config(Path::new(model), map_file)?;
    if let (Some(_), Err(why)) = (&arguments.gpu, engine_gpu::head_dimension(&config)) {
        config.unserved.push(format!("the CUDA backend {why}"));
    }
    // Ranks as many as GPUs, unless either is said.
    let asked = arguments.options.tensor_parallel_size.map(|ranks| ranks as usize);
    let ranks = asked.or(arguments.count).unwrap_or(1);
    options.tensor_parallel_size = Some(u32::try_from(ranks).context("--count is too large")?);
    let (machine, tuning) = machine(arguments, &options, ranks)?;
    let name =
        Path::new(model).file_stem().map_or_else(|| model.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let (speculation, draft) = speculation(arguments, &options, &config)?;
    let mut request = PlanRequest { speculation, draft, tuning, ..PlanRequest::new(name, config, machine) };
    if arguments.gpu.is_none() {
        let unused = loader::unused_on_cpu(&options)?;
        request = PlanRequest { unused, ..loader::cpu_request(request, &options) };
    }
    Ok(engine::plan::build(&loader::choices(&options).apply(request))?)
}

/// The draft model as its files say or, without them, as the flags do.
fn speculation(
    arguments: &Arguments,
    options: &Options,
    config: &ModelConfig,
) -> Result<(Option<SpeculationShape>, Option<DraftReport>)> {
    let Some(asked) = loader::speculation::asked(options)? else { return Ok((None, None)) };
    if asked.folder.is_some() {
        let opened = loader::speculation::open(options, config)?;
        let element = if arguments.gpu.is_some() { 2 } else { loader::cache_element_bytes(options) };
        let shape = opened.as_ref().map(|opened| loader::speculation::planned(opened, element));
        return Ok((shape, opened.as_ref().map(loader::speculation::report)));
    }
    let draft_bytes = arguments.draft_size.map_or(0, |size| size.0);
    ensure!(draft_bytes <= LARGEST_DRAFT, "--draft-size {draft_bytes}: no machine holds so much; at most 16 TiB");
    let shape = SpeculationShape {
        verify_tokens: asked.shape.verify_tokens,
        steps: asked.shape.steps,
        draft_hidden: arguments.draft_hidden.map_or(config.hidden, |hidden| hidden as usize),
        draft_vocabulary: DRAFT_VOCABULARY.min(config.vocabulary),
        draft_bytes,
        draft_cache_bytes: 0,
    };
    Ok((Some(shape), None))
}

/// The machine, and the tuning that its ladders come from. What another machine found is used when it is named: nobody
/// says that these GPUs are those of this one.
fn machine(arguments: &Arguments, options: &Options, ranks: usize) -> Result<(Machine, Option<TuningReport>)> {
    let Some(gpu) = &arguments.gpu else { return Ok((Machine::Cpu(loader::host_cpu(options.threads)), None)) };
    let database = open_database(options.capdb.as_deref().map(Path::new))?;
    let (database, file) = loader::tuning::lay(database, options.tuning.as_deref(), None)?;
    let facts = GpuFacts {
        topology: arguments.topology,
        multicast: arguments.multicast,
        nodes: arguments.nodes,
        toolkit: arguments.toolkit.clone(),
        driver: arguments.driver.clone(),
        nccl: arguments.nccl.clone(),
        ..GpuFacts::default()
    };
    let machine = Machine::gpu(&database, gpu, arguments.count.unwrap_or(ranks), &facts)?;
    let known = MachineFacts::given(&facts, ranks);
    let tuning = file.and_then(|file| TuningReport::new(&database, &file, &machine, &known));
    Ok((machine, tuning))
}
