//! `archway bench allreduce`: sums over the GPUs of this machine, checked, then timed beside NCCL.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use engine::plan::{device_record, feature_attributes, kernel_target, open_database};
use engine_gpu::collective::Algorithm;
use engine_gpu::compile::CompileTarget;
use engine_gpu::doctor::{Survey, survey};
use engine_gpu::kernels::{Element, NormOutput, Shots};
use engine_gpu::library::Library;
use engine_gpu::measure::{
    MeasurePlan, NormCase, NormTime, Rank, SoakPlan, SoakReport, Stack, SumCase, SumTime, Times, check_norms,
    check_stall, check_sums, element, on_ranks, soak, time_norms, time_sums,
};
use serde::Serialize;

use super::report;
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
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// All figures.
#[derive(Serialize)]
struct Report {
    stack: Stack,
    ranks: usize,
    /// Sums that were compared with a reference, per rank.
    compared: usize,
    soak: Option<SoakReport>,
    /// What the ranks reported of one that left out a call.
    stall: Option<String>,
    sums: Vec<SumTime>,
    norms: Vec<NormTime>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    ensure!(element(&arguments.dtype).is_some(), "--dtype is bf16, f16 or f32, not `{}`", arguments.dtype);
    ensure!((1..=1024).contains(&arguments.window), "--window is 1 to 1024 MiB");
    let database = open_database(arguments.capdb.as_deref().map(Path::new))?;
    let survey = survey(&feature_attributes(&database));
    let devices = devices(arguments, &survey)?;
    let first = &survey.devices[devices[0]];
    let record = device_record(&database, &first.name, &first.compute_capability).with_context(|| {
        format!(
            "{} (compute capability {}) has no record; `capdb add-arch` makes one",
            first.name, first.compute_capability
        )
    })?;
    let target = kernel_target(&database, &record)?;
    let name = target.targets.first().with_context(|| format!("the record {record} names no compiler target"))?;
    let plan = MeasurePlan {
        devices,
        target: CompileTarget { target: name.clone(), features: target.features.clone() },
        half: arguments.window << 20,
        patience: Duration::from_secs(5),
        programmatic: !arguments.serial,
    };
    let stall = if arguments.no_check { None } else { Some(check_stall(&plan, Duration::from_millis(500))?) };
    let mut reports = on_ranks(&plan, |rank| measure(arguments, rank))?;
    let ranks = reports.len();
    let norms = slowest(&reports, |own| &own.norms, |norm| &mut norm.times, |norm| norm.times);
    let sums = slowest(&reports, |own| &own.sums, |sum| &mut sum.times, |sum| sum.times);
    let own = reports.swap_remove(0);
    let stack = stack(&survey, &first.name);
    let report = Report { stack, ranks, compared: own.compared, soak: own.soak, stall, sums, norms };
    if arguments.json {
        report::json(&report)?;
    } else {
        print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn devices(arguments: &Arguments, survey: &Survey) -> Result<Vec<usize>> {
    if let Some(problem) = &survey.problem {
        bail!("there is nothing to sum over: {problem}");
    }
    let all: Vec<usize> = survey.devices.iter().map(|device| device.ordinal).collect();
    let devices = if arguments.devices.is_empty() { all.clone() } else { arguments.devices.clone() };
    for device in &devices {
        ensure!(all.contains(device), "there is no GPU {device}: the driver sees {}", all.len());
    }
    ensure!(devices.len() > 1, "a sum needs two GPUs or more; the driver sees {}", all.len());
    ensure!(devices.len() <= 16, "groups have 16 ranks at most, not {}", devices.len());
    Ok(devices)
}

fn stack(survey: &Survey, gpu: &str) -> Stack {
    let nccl = survey.libraries.iter().find(|report| report.library == Library::Nccl);
    Stack {
        gpu: gpu.to_owned(),
        driver: survey.driver.clone().unwrap_or_default(),
        nccl: nccl.and_then(|report| report.found.as_ref()).map(|found| found.version.clone()),
    }
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
        own.compared = check_sums(rank, &sum_checks())? + check_norms(rank, &norm_checks())?;
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
    let times = time_sums(rank, &cases)?;
    own.sums = cases.iter().zip(times).filter_map(|(case, times)| Some(SumTime::new(case, times?))).collect();
    for hidden in &arguments.hidden {
        own.norms.extend(time_norms(rank, *hidden, &arguments.tokens)?);
    }
    Ok(own)
}

/// Every algorithm and format, at lengths that end within and at packets, at unaligned places, in and out of place.
fn sum_checks() -> Vec<SumCase> {
    let lengths = [1, 3, 7, 8, 9, 50, 2048, 7168, 32_769, 524_291, 1_700_003];
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        for element in Element::ALL {
            for (number, &elements) in lengths.iter().enumerate() {
                let (in_place, shift) = (number % 2 == 1, if number % 3 == 2 { 1 } else { 0 });
                cases.push(SumCase { algorithm, element, elements, in_place, shift });
            }
        }
    }
    // More than a window: two-shot goes in pieces.
    let large = SumCase {
        algorithm: Algorithm::TwoShot,
        element: Element::Bf16,
        elements: (20 << 20) + 3,
        in_place: true,
        shift: 0,
    };
    cases.push(large);
    cases
}

fn norm_checks() -> Vec<NormCase> {
    let mut cases = Vec::new();
    let shapes = [(1, 4096), (8, 7168), (3, 576), (5, 1001), (140, 2880), (2, 12_288)];
    for shots in [Shots::One, Shots::Two] {
        for element in Element::ALL {
            for (rows, width) in shapes.into_iter().filter(|(_, width)| element != Element::F32 || *width <= 6144) {
                cases.push(NormCase { shots, element, output: NormOutput::Element, rows, width });
            }
        }
        for element in [Element::Bf16, Element::F16] {
            for output in [NormOutput::Fp8Tensor, NormOutput::Fp8Token, NormOutput::Nvfp4] {
                for (rows, width) in [(1, 4096), (9, 2880), (3, 576)] {
                    cases.push(NormCase { shots, element, output, rows, width });
                }
            }
        }
    }
    cases
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
    let Report { stack, ranks, compared, soak, stall, sums, norms } = report;
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
        let bandwidth = *bytes as f64 / graph.max(1e-9) / 1e3;
        println!("{bytes:>12} {dtype:>6}  {algorithm:<10} {graph:>10.2} {spread:>8.2} {eager:>10.2} {bandwidth:>8.1}");
    }
    println!(
        "{:>8} {:>6}  {:<10} {:<8} {:>10} {:>8} {:>10}",
        "hidden", "tokens", "algorithm", "", "graph us", "spread", "eager us"
    );
    for norm in norms {
        let NormTime { algorithm, fused, rows, width, times } = norm;
        let Times { graph, spread, eager } = times;
        let fused = if *fused { "fused" } else { "unfused" };
        println!("{width:>8} {rows:>6}  {algorithm:<10} {fused:<8} {graph:>10.2} {spread:>8.2} {eager:>10.2}");
    }
}
