use std::process::ExitCode;

use anyhow::{Result, bail};
use capdb::cases::{Given, GivenRequest, GivenStack, Message, Quantization, RequestedAllReduce, RequestedFusion, ask};
use capdb::database::Database;
use capdb::quantity::{Size, SizeError, Version};
use capdb::record::{Dtype, Topology};
use capdb_tool::answer;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::output::{self, FormatArgs};
use crate::source::{OverlayArgs, Source};

/// Explain a decision: which all-reduce algorithm and which fusion a message takes on a machine, and why not another.
///
/// What is not given is unknown, not false. With --gpu the usual topology and multicast of the product are assumed, as
/// `archway plan` does, and said so.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  capdb explain --gpu h200 --world-size 8 --message 112KiB
  capdb explain --arch sm120 --world-size 4 --topology pcie_p2p --multicast false --message 24KiB --allreduce multimem
                                               refused, with every reason and where it comes from
  capdb explain --arch sm120 --world-size 2 --topology pcie_p2p --message 16KiB --strict
                                               guessed and inherited values do not count

The exit code is 0 whatever the verdict; `archway plan` exits 2 for a refused one.")]
#[group(id = "machine", required = true, multiple = false, args = ["arch", "gpu"])]
pub struct Args {
    /// Id, alias or compute capability of an architecture; one without a record is allowed.
    #[arg(long, value_name = "ID")]
    arch: Option<String>,
    /// Id of a product.
    #[arg(long, value_name = "ID")]
    gpu: Option<String>,
    /// Ranks.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    world_size: u32,
    /// How the ranks used are joined.
    #[arg(long, value_name = "T", value_parser = words::<Topology>(Topology::ALL.iter().map(|t| t.word())))]
    topology: Option<Topology>,
    /// Bytes per rank: an integer, or with KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    message: Option<Size>,
    /// auto, nccl, one_shot, two_shot, multimem or symmetric_memory.
    #[arg(long, value_name = "ALGORITHM", default_value = "auto", value_parser = allreduce())]
    allreduce: RequestedAllReduce,
    /// auto, fused or unfused.
    #[arg(long, value_name = "FUSION", default_value = "auto", value_parser = fusion())]
    fusion: RequestedFusion,
    /// Element type of the message.
    #[arg(long, value_name = "TYPE", default_value = "bf16", value_parser = words::<Dtype>(Dtype::ALL.iter().map(|d| d.word())))]
    dtype: Dtype,
    /// Output format of the fused kernel.
    #[arg(long, value_name = "FORMAT", value_parser = quantization())]
    quantization: Option<Quantization>,
    /// Whether the machine has multicast memory.
    #[arg(long, value_name = "BOOL")]
    multicast: Option<bool>,
    /// Version of the CUDA toolkit, e.g. 13.0.
    #[arg(long, value_name = "VERSION")]
    toolkit: Option<Version>,
    /// Version of the driver, e.g. 580.65.06.
    #[arg(long, value_name = "VERSION")]
    driver: Option<Version>,
    /// Version of the loaded NCCL, e.g. 2.28.9.
    #[arg(long, value_name = "VERSION")]
    nccl: Option<Version>,
    /// Machines that the ranks are spread over.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    nodes: Option<u32>,
    /// Do not rest on guessed or inherited values.
    #[arg(long)]
    strict: bool,
    /// Let an explicit request fall back instead of refusing it.
    #[arg(long)]
    allow_fallback: bool,
    #[command(flatten)]
    overlay: OverlayArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn run(args: &Args, source: &Source) -> Result<ExitCode> {
    if let Some(nodes) = args.nodes.filter(|nodes| *nodes > args.world_size) {
        bail!("--nodes {nodes}: more machines than ranks (--world-size {})", args.world_size);
    }
    let database = args.overlay.lay(source.open()?)?;
    let mut given = args.given();
    let topology = usual_topology(&database, &mut given);
    let mut answer = ask(&database, &given, None)?;
    answer.assumed.splice(0..0, topology);
    if args.format.is_json() {
        output::json(&answer::to_json(&answer)?)?;
    } else {
        output::data(&answer::to_text(&answer, database.index()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fills the product's usual topology in where none is given, and says so.
fn usual_topology(database: &Database, given: &mut Given) -> Option<String> {
    let product = given.gpu.as_ref().and_then(|gpu| database.index().gpus.get(gpu))?;
    if given.topology.is_some() {
        return None;
    }
    given.topology = Some(product.usual_topology);
    Some(format!("topology: {}", product.usual_topology.word()))
}

impl Args {
    fn given(&self) -> Given {
        let stack = GivenStack { toolkit: self.toolkit.clone(), driver: self.driver.clone(), nccl: self.nccl.clone() };
        Given {
            arch: self.arch.clone(),
            gpu: self.gpu.clone(),
            world_size: self.world_size,
            topology: self.topology,
            multicast: self.multicast,
            dtype: Some(self.dtype),
            message: self.message.map(Message::Bytes),
            quantization: self.quantization,
            stack: Some(stack),
            nodes: self.nodes,
            request: GivenRequest {
                allreduce: self.allreduce,
                fusion: self.fusion,
                strict: self.strict,
                allow_fallback: self.allow_fallback,
                max_message: None,
            },
            ..Given::default()
        }
    }
}

fn size(text: &str) -> Result<Size, String> {
    text.parse().map_err(|error: SizeError| {
        let message = error.to_string();
        let joint = if message.ends_with('?') { " " } else { "; " };
        format!("{message}{joint}{}", error.hint())
    })
}

/// A closed list of words whose type reads them.
fn words<T>(list: impl Iterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(list).try_map(|word| word.parse::<T>())
}

/// The same for the types of the case format, which read themselves from JSON.
fn json_words<T>(list: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: for<'de> serde::Deserialize<'de> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(list).try_map(|word| serde_json::from_value::<T>(serde_json::Value::String(word)))
}

fn allreduce() -> impl TypedValueParser<Value = RequestedAllReduce> {
    json_words(&["auto", "nccl", "one_shot", "two_shot", "multimem", "symmetric_memory"])
}

fn fusion() -> impl TypedValueParser<Value = RequestedFusion> {
    json_words(&["auto", "fused", "unfused"])
}

fn quantization() -> impl TypedValueParser<Value = Quantization> {
    json_words(&["none", "fp8", "nvfp4"])
}
