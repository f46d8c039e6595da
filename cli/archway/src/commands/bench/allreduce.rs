//! `archway bench allreduce`: sums over the GPUs of this machine, checked, then timed beside NCCL.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use engine::plan::open_database;
use engine_gpu::collective::Algorithm;
use engine_gpu::kernels::{Element, NormOutput};
use engine_gpu::measure::{
    Launches, MeasurePlan, NormTime, Rank, SoakPlan, SoakReport, Stack, SumCase, SumTime, Times, check_everything,
    check_stall, element, on_ranks, soak, time_norms, time_sums,
};
use serde::Serialize;

use super::allreduce_charts::charts;
use super::bounds::{SECONDS, within};
use super::peers::Peers;
use super::report;
use crate::files::{writable, write_whole};
use crate::gpus::MeasuredGpus;
use crate::plot::svg;
use crate::settings::Bytes;

/// Time sums over GPUs: NCCL, one-shot and two-shot; with and without residual and norm.
///
/// Everything is compared with reference sums before it is timed. Times are medians of five rounds of a graph of 100
/// calls, and of 100 single launches; the slowest rank counts.
#[derive(Args)]
pub struct Arguments {
    /// GPUs that form the group, in rank order. Default: all.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    devices: Vec<usize>,
    /// Messages per rank, in bytes or with KiB, MiB. Default: 4 KiB to 128 MiB.
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    sizes: Vec<Bytes>,
    /// bf16, f16 or f32.
    #[arg(long, value_name = "DTYPE", default_value = "bf16")]
    dtype: String,
    /// Hidden sizes of the fused sums.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', default_values_t = [4096, 7168])]
    hidden: Vec<u32>,
    /// Rows of the fused sums.
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_values_t = [1, 4, 8, 16, 32, 64, 128])]
    tokens: Vec<u32>,
    /// MiB of half of a GPU's window: one-shot takes messages of up to this over the number of ranks.
    #[arg(long, value_name = "MIB", default_value_t = 32)]
    window: usize,
    /// Seconds of random sums under graph replay, with ranks that come late, before anything is timed.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    soak: u64,
    /// Time only.
    #[arg(long)]
    no_check: bool,
    /// Check only.
    #[arg(long)]
    no_time: bool,
    /// Start each kernel only when the one before it has ended.
    #[arg(long)]
    serial: bool,
    /// Folder of the capability database. Default: the copy inside the program.
    #[arg(long, value_name = "FOLDER")]
    capdb: Option<String>,
    /// Figures of other libraries from the same run, of `tests/gpu/allreduce_peers.py`, to stand beside ours.
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Draw all times into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Keep all figures in this file, as JSON, beside what is printed.
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// All figures.
#[derive(Serialize)]
pub struct Report {
    pub stack: Stack,
    pub ranks: usize,
    /// Sums that were compared with a reference, per rank.
    compared: usize,
    soak: Option<SoakReport>,
    /// What the ranks reported of one that left out a call.
    stall: Option<String>,
    pub sums: Vec<SumTime>,
    pub norms: Vec<NormTime>,
    pub peers: Option<Peers>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    ensure!(element(&arguments.dtype).is_some(), "--dtype is bf16, f16 or f32, not `{}`", arguments.dtype);
    ensure!((1..=1024).contains(&arguments.window), "--window is 1 to 1024 MiB");
    within("soak", arguments.soak as f64, &SECONDS)?;
    let database = open_database(arguments.capdb.as_deref().map(Path::new))?;
    let gpus = MeasuredGpus::find(&database)?;
    let devices = gpus.devices(&arguments.devices)?;
    let peers = arguments.peers.as_deref().map(|file| Peers::read(file, devices.len())).transpose()?;
    for file in [&arguments.figures, &arguments.plot].into_iter().flatten() {
        writable(file)?;
    }
    let plan = MeasurePlan { programmatic: !arguments.serial, ..gpus.plan(devices, arguments.window << 20) };
    let stall = if arguments.no_check { None } else { Some(check_stall(&plan, Duration::from_millis(500))?) };
    let mut reports = on_ranks(&plan, |rank| measure(arguments, rank))?;
    let ranks = reports.len();
    let norms = slowest(&reports, |own| &own.norms, |norm| &mut norm.times, |norm| norm.times);
    let sums = slowest(&reports, |own| &own.sums, |sum| &mut sum.times, |sum| sum.times);
    let own = reports.swap_remove(0);
    let report =
        Report { stack: gpus.stack(), ranks, compared: own.compared, soak: own.soak, stall, sums, norms, peers };
    if let Some(file) = &arguments.figures {
        write_whole(file, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    if let Some(file) = &arguments.plot {
        write_whole(file, &svg(&charts(&report)))?;
    }
    if arguments.json {
        report::json(&report)?;
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// What one rank found.
struct Own {
    compared: usize,
    soak: Option<SoakReport>,
    sums: Vec<SumTime>,
    norms: Vec<NormTime>,
}

/// Each line with the times of the slowest rank.
fn slowest<T: Clone>(
    reports: &[Own],
    list: impl Fn(&Own) -> &Vec<T>,
    place: impl Fn(&mut T) -> &mut Times,
    times: impl Fn(&T) -> Times,
) -> Vec<T> {
    let mut lines = reports.first().map(|own| list(own).clone()).unwrap_or_default();
    for (number, line) in lines.iter_mut().enumerate() {
        let all: Vec<Times> = reports.iter().filter_map(|own| list(own).get(number)).map(&times).collect();
        *place(line) = Times::slowest(&all);
    }
    lines
}

fn measure(arguments: &Arguments, rank: &Rank) -> Result<Own, engine_gpu::measure::MeasureError> {
    let mut own = Own { compared: 0, soak: None, sums: Vec::new(), norms: Vec::new() };
    if !arguments.no_check {
        own.compared = check_everything(rank)?;
    }
    if arguments.soak > 0 {
        let duration = Duration::from_secs(arguments.soak);
        let plan = SoakPlan { seed: 1, duration, calls: 64, largest: 1 << 20, delay: 1_000_000 };
        own.soak = Some(soak(rank, &plan)?);
    }
    if arguments.no_time {
        return Ok(own);
    }
    let Some(element) = element(&arguments.dtype) else { return Ok(own) };
    let cases = timed(arguments, element);
    let times = time_sums(rank, &cases, Launches::GraphAndEager)?;
    own.sums = cases.iter().zip(times).filter_map(|(case, times)| Some(SumTime::new(case, times?))).collect();
    for hidden in &arguments.hidden {
        own.norms.extend(time_norms(
            rank,
            *hidden,
            &arguments.tokens,
            &[NormOutput::Element],
            Launches::GraphAndEager,
        )?);
    }
    Ok(own)
}

fn timed(arguments: &Arguments, element: Element) -> Vec<SumCase> {
    let usual = || {
        let powers = (12..=27).map(|power| 1 << power);
        let mut sizes: Vec<u64> = powers.chain([14_336, 114_688, 458_752]).collect();
        sizes.sort_unstable();
        sizes
    };
    let sizes = if arguments.sizes.is_empty() { usual() } else { arguments.sizes.iter().map(|size| size.0).collect() };
    let case = |bytes: u64, algorithm| SumCase {
        algorithm,
        element,
        elements: bytes.div_ceil(element.bytes()),
        in_place: false,
        shift: 0,
    };
    sizes.into_iter().flat_map(|bytes| Algorithm::ALL.map(|algorithm| case(bytes, algorithm))).collect()
}

fn print(report: &Report) {
    let Report { stack, ranks, compared, soak, stall, sums, norms, peers } = report;
    println!("{ranks} x {}, driver {}, NCCL {}", stack.gpu, stack.driver, stack.nccl.as_deref().unwrap_or("absent"));
    if let Some(stall) = stall {
        println!("compared with references: {compared} calls per rank, no mismatch");
        println!("a rank that left out a call: {stall}");
    }
    if let Some(soak) = soak {
        println!("soak: {} sums in {} graphs, {} replays, no mismatch", soak.collectives, soak.graphs, soak.replays);
    }
    println!(
        "{:>12} {:>6}  {:<10} {:>10} {:>8} {:>10} {:>8}",
        "bytes", "dtype", "algorithm", "graph us", "spread", "eager us", "GB/s"
    );
    for sum in sums {
        let SumTime { algorithm, dtype, bytes, times, .. } = sum;
        let Times { graph, spread, eager } = times;
        let eager = eager.unwrap_or(f64::NAN);
        let bandwidth = *bytes as f64 / graph.max(1e-9) / 1e3;
        println!("{bytes:>12} {dtype:>6}  {algorithm:<10} {graph:>10.2} {spread:>8.2} {eager:>10.2} {bandwidth:>8.1}");
    }
    println!(
        "{:>8} {:>6}  {:<10} {:<8} {:>10} {:>8} {:>10}",
        "hidden", "tokens", "algorithm", "", "graph us", "spread", "eager us"
    );
    for norm in norms {
        let NormTime { algorithm, fused, rows, width, times, .. } = norm;
        let Times { graph, spread, eager } = times;
        let eager = eager.unwrap_or(f64::NAN);
        let fused = if *fused { "fused" } else { "unfused" };
        println!("{width:>8} {rows:>6}  {algorithm:<10} {fused:<8} {graph:>10.2} {spread:>8.2} {eager:>10.2}");
    }
    if let Some(peers) = peers {
        print_peers(peers);
    }
}

fn print_peers(peers: &Peers) {
    println!("beside it, {}:", peers.stack);
    for sum in &peers.sums {
        println!("{:>12} {:>6}  {:<26} {:>10.2}", sum.bytes, "bf16", sum.name, sum.microseconds);
    }
    for norm in &peers.norms {
        println!("{:>8} {:>6}  {:<26} {:>10.2}", norm.width, norm.rows, norm.name, norm.microseconds);
    }
    peers.notes.iter().for_each(|note| println!("note: {note}"));
}
