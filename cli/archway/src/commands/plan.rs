//! `archway plan`: what would run where, and why, without the machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use engine::plan::tuning::{MachineFacts, TuningReport};
use engine::plan::{
    GpuFacts, Machine, Plan, PlanRequest, PlanVerdict, SpeculationShape, Topology, Version, open_database,
};

use crate::loader::{self, Kind, Wanted, capacity};
use crate::settings::{Bytes, Device, Options, Origin, Resolved, resolve};

/// Draft tokens of most published heads.
const DRAFT_VOCABULARY: usize = 32000;
/// Weights of a draft model, in bytes.
const LARGEST_DRAFT: u64 = 1 << 44;

/// Plan a model on GPUs that nobody needs to own, or on this CPU.
///
/// Exit code 0: planned. 2: refused, or out of memory, and with --strict also where it could not be served; the plan says
/// why. So it checks a deployment in CI.
#[derive(Args)]
pub struct Arguments {
    /// Model: a folder in Hugging Face layout, a .gguf file, or a config.json.
    #[arg(value_name = "MODEL", id = "model_path_argument")]
    model: Option<String>,
    /// Product of the database, e.g. h200 or rtx-pro-6000. Default: this machine's CPU.
    #[arg(long, value_name = "ID", help_heading = "Machine")]
    gpu: Option<String>,
    /// GPUs of the machine. Default: one for each rank.
    #[arg(long, value_name = "COUNT", requires = "gpu", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Machine")]
    count: Option<u32>,
    /// How the GPUs are connected. Default: the product's usual way.
    #[arg(long, value_name = "TOPOLOGY", requires = "gpu", help_heading = "Machine")]
    topology: Option<Topology>,
    /// Whether multicast memory works. Default: as in the product's usual machine.
    #[arg(long, value_name = "true|false", requires = "gpu", help_heading = "Machine")]
    multicast: Option<bool>,
    /// Machines that the ranks are spread over.
    #[arg(long, value_name = "COUNT", requires = "gpu", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Machine")]
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
    /// Weights of a draft model that is planned without its files. Default: they are not counted.
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
    let flags = arguments.options.clone().with_model(arguments.model.as_deref())?;
    let settings = resolve(&flags, arguments.config.as_deref())?;
    let (kind, options) = (kind(arguments, &settings.options)?, ranks(arguments, &settings)?);
    let model = options.model.as_deref().context("no model is given; name a folder, a .gguf file or a config.json")?;
    let mut wanted = Wanted::read(model, &options)?;
    if let (Kind::Cuda, Err(why)) = (kind, engine_gpu::head_dimension(&wanted.config)) {
        wanted.config.unserved.push(format!("the CUDA backend {why}"));
    }
    let imagined = imagined_draft(arguments, &options, wanted.config.hidden, wanted.config.vocabulary)?;
    let draft = if imagined.is_none() { wanted.draft(kind, &options)? } else { None };
    let (machine, tuning) = machine(arguments, &options)?;
    let ranks = options.tensor_parallel_size.unwrap_or(1);
    let nodes = arguments.nodes.unwrap_or(1);
    ensure!(nodes <= ranks, "--nodes {nodes}: more machines than ranks (--tensor-parallel-size {ranks})");
    if ranks > 1 && machine.spans_hosts() {
        wanted.config.unserved.push("its ranks stand on several machines, and one server runs on one".to_owned());
    }
    let request = wanted.request((kind, machine, tuning), draft.as_ref(), &options)?;
    let mut plan = engine::plan::build(&PlanRequest { speculation: imagined.or(request.speculation), ..request })?;
    plan.warnings.extend(imagined.as_ref().map(said_of_imagined));
    // Where nobody knows the memory, nobody knows what it can hold.
    if plan.verdict != PlanVerdict::Refused && plan.memory.device.is_some() {
        capacity::of(&options, &mut plan, &wanted.config, (wanted.context, kind.sizes()))?;
    }
    Ok(plan)
}

/// Errors: another device is asked for than the one that is planned for.
fn kind(arguments: &Arguments, options: &Options) -> Result<Kind> {
    match (&arguments.gpu, options.device) {
        (Some(gpu), Some(Device::Cpu)) => bail!("--gpu {gpu} and --device cpu contradict each other; leave one out"),
        (Some(_), _) => Ok(Kind::Cuda),
        (None, Some(Device::Cuda)) => {
            bail!("--device cuda: a plan asks no machine; say by --gpu for which product it is")
        }
        (None, _) => Ok(Kind::Cpu),
    }
}

/// The settings with as many ranks as GPUs, unless either is said.
fn ranks(arguments: &Arguments, settings: &Resolved) -> Result<Options> {
    let said = !matches!(settings.origin("tensor-parallel-size"), None | Some(Origin::Default));
    let mut options = settings.options.clone();
    if let Some(count) = arguments.count.filter(|_| !said) {
        options.tensor_parallel_size = Some(count);
    }
    Ok(options)
}

/// A draft model that is planned without its files, as the flags say. Errors: flags about one that has files, or about none.
fn imagined_draft(
    arguments: &Arguments,
    options: &Options,
    hidden: usize,
    vocabulary: usize,
) -> Result<Option<SpeculationShape>> {
    let asked = loader::speculation::asked(options)?.filter(|asked| asked.folder.is_none());
    let Some(asked) = asked else {
        let described = arguments.draft_hidden.is_some() || arguments.draft_size.is_some();
        ensure!(
            !described,
            "--draft-hidden and --draft-size describe a draft model that has no files here: give them with --speculative \
             and without --speculative-draft-model-path"
        );
        return Ok(None);
    };
    let draft_bytes = arguments.draft_size.map_or(0, |size| size.0);
    ensure!(draft_bytes <= LARGEST_DRAFT, "--draft-size {draft_bytes}: no machine holds so much; at most 16 TiB");
    Ok(Some(SpeculationShape {
        verify_tokens: asked.shape.verify_tokens,
        steps: asked.shape.steps,
        draft_hidden: arguments.draft_hidden.map_or(hidden, |hidden| hidden as usize),
        draft_vocabulary: DRAFT_VOCABULARY.min(vocabulary),
        draft_bytes,
        draft_cache_bytes: 0,
    }))
}

/// What a plan rests on where there is no head: a start needs one.
fn said_of_imagined(shape: &SpeculationShape) -> String {
    let weights = match shape.draft_bytes {
        0 => "its weights (without --draft-size) and its cache are not counted".to_owned(),
        bytes => {
            format!("{:.2} GiB of weights (--draft-size); its cache is not counted", bytes as f64 / (1u64 << 30) as f64)
        }
    };
    format!(
        "no draft head is given, so one is imagined: hidden size {} (--draft-hidden), {} draft tokens, {weights}; \
         `archway serve` needs --speculative-draft-model-path",
        shape.draft_hidden, shape.draft_vocabulary
    )
}

/// The machine, and the tuning that its ladders come from. What another machine found is used when it is named: nobody
/// says that these GPUs are those of this one.
fn machine(arguments: &Arguments, options: &Options) -> Result<(Machine, Option<TuningReport>)> {
    let ranks = options.tensor_parallel_size.unwrap_or(1) as usize;
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
    let machine = Machine::gpu(&database, gpu, arguments.count.map_or(ranks, |count| count as usize), &facts)?;
    let known = MachineFacts::given(&facts, ranks);
    let tuning = file.and_then(|file| TuningReport::new(&database, &file, &machine, &known));
    Ok((machine, tuning))
}
