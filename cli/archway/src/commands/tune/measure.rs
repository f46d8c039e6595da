//! The sums of a tuning, measured for each number of ranks.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use engine::plan::tuning::{Group, Measurement, NormPoint, SumPoint};
use engine::plan::{AlgorithmId, Dtype, FusionId, open_database};
use engine_gpu::collective::Algorithm;
use engine_gpu::kernels::{Element, NormOutput};
use engine_gpu::measure::{
    CALLS, Launches, MeasureError, NormTime, ROUNDS, Rank, SumCase, Times, check_everything, on_ranks, time_norms,
    time_sums,
};
use engine_gpu::probe::links;

use super::Arguments;
use crate::date;
use crate::files::writable;
use crate::gpus::{Joined, MeasuredGpus, measured_kernels};
use crate::loader::tuning::usual_file;

/// Bytes of half a window while measuring: one-shot takes messages of up to this over twice the ranks.
const HALF: usize = 64 << 20;
/// Hidden sizes and rows of the sums with residual and norm.
const WIDTHS: [u32; 2] = [4096, 7168];
const ROWS: [u32; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// What fused kernels give; of the two scales of fp8 the one that takes longer.
const OUTPUTS: [NormOutput; 3] = [NormOutput::Element, NormOutput::Fp8Token, NormOutput::Nvfp4];

/// Measures what the arguments ask for. Errors: no GPUs, more ranks than GPUs, GPUs that do not reach each other.
pub(super) fn measure(arguments: &Arguments) -> Result<Measurement> {
    let database = open_database(arguments.capdb.as_deref().map(Path::new))?;
    let gpus = MeasuredGpus::find(&database)?;
    if arguments.out.is_none() {
        writable(&usual_file(&gpus.record)?)?;
    }
    let all = gpus.devices(&[])?;
    let sizes = world_sizes(&arguments.world_sizes, all.len())?;
    let groups =
        sizes.into_iter().map(|ranks| group(&gpus, &all[..ranks], !arguments.no_check)).collect::<Result<_>>()?;
    let stack = gpus.stack();
    Ok(Measurement {
        schema: Measurement::schema(),
        record: gpus.record.clone(),
        gpu: stack.gpu,
        driver: stack.driver,
        nccl: stack.nccl,
        kernels: measured_kernels(&gpus.target),
        date: date::today(),
        // No algorithm that is measured needs it.
        multicast: false,
        method: format!("graphs of {CALLS} calls, medians of {ROUNDS} rounds, the slowest rank"),
        groups,
    })
}

/// Ascending. Errors: more ranks than GPUs, or than a group has.
fn world_sizes(wanted: &[usize], gpus: usize) -> Result<Vec<usize>> {
    for ranks in wanted {
        ensure!((2..=16).contains(ranks), "--world-sizes {ranks}: groups have 2 to 16 ranks");
        ensure!(*ranks <= gpus, "--world-sizes {ranks}: the driver sees {gpus} GPUs");
    }
    let mut sizes = wanted.to_vec();
    if sizes.is_empty() {
        sizes = [2, 4, 8, 16].into_iter().filter(|ranks| *ranks <= gpus).collect();
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

fn group(gpus: &MeasuredGpus, devices: &[usize], check: bool) -> Result<Group> {
    let begin = Instant::now();
    let joined = Joined::ask(devices)?;
    if let Some(finding) = joined.probe.finding() {
        anyhow::bail!("{finding}");
    }
    let cases = cases();
    let ranks = on_ranks(&gpus.plan(devices.to_vec(), HALF), |rank| one_rank(rank, &cases, check))?;
    let sums = ranks.iter().map(|own| own.sums.as_slice()).collect::<Vec<_>>();
    let norms = ranks.iter().map(|own| own.norms.as_slice()).collect::<Vec<_>>();
    let compared = ranks.first().map_or(0, |own| own.compared);
    let took: Duration = begin.elapsed();
    eprintln!("{} ranks: {compared} calls compared, measured in {:.0} s", devices.len(), took.as_secs_f64());
    Ok(Group {
        world_size: u32::try_from(devices.len())?,
        topology: joined.topology,
        link: links(&joined.pairs),
        sums: sum_points(&cases, &sums)?,
        norms: norm_points(&norms)?,
    })
}

/// What one rank timed.
struct Own {
    compared: usize,
    /// As many as cases; none where an algorithm does not take the message.
    sums: Vec<Option<Times>>,
    norms: Vec<NormTime>,
}

fn one_rank(rank: &Rank, cases: &[SumCase], check: bool) -> Result<Own, MeasureError> {
    let compared = if check { check_everything(rank)? } else { 0 };
    let sums = time_sums(rank, cases, Launches::Graph)?;
    let mut norms = Vec::new();
    for width in WIDTHS {
        norms.extend(time_norms(rank, width, &ROWS, &OUTPUTS, Launches::Graph)?);
    }
    Ok(Own { compared, sums, norms })
}

/// Every algorithm and element type, from 1 KiB to 128 MiB by powers of two, and where ladders usually change also
/// half-way between them.
fn cases() -> Vec<SumCase> {
    let mut sizes: Vec<u64> = (10..=27).map(|power| 1 << power).collect();
    sizes.extend((16..=23).map(|power| 3 << power));
    sizes.sort_unstable();
    let case = |bytes: u64, element: Element, algorithm| SumCase {
        algorithm,
        element,
        elements: bytes / element.bytes(),
        in_place: false,
        shift: 0,
    };
    let of = |element: Element| {
        let case = move |bytes| Algorithm::ALL.map(|algorithm| case(bytes, element, algorithm));
        sizes.iter().copied().flat_map(case).collect::<Vec<_>>()
    };
    Element::ALL.into_iter().flat_map(of).collect()
}

/// A word of ours in the database's type.
fn word<T: std::str::FromStr<Err = String>>(word: &str) -> Result<T> {
    word.parse().map_err(anyhow::Error::msg)
}

fn sum_points(cases: &[SumCase], ranks: &[&[Option<Times>]]) -> Result<Vec<SumPoint>> {
    let mut points = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let all: Option<Vec<Times>> = ranks.iter().map(|own| own.get(number).copied().flatten()).collect();
        let Some(Times { graph, spread, .. }) = all.as_deref().map(Times::slowest) else { continue };
        points.push(SumPoint {
            algorithm: word::<AlgorithmId>(case.algorithm.name())?,
            dtype: word::<Dtype>(case.element.name())?,
            bytes: case.elements * case.element.bytes(),
            microseconds: rounded(graph),
            spread: rounded(spread),
        });
    }
    Ok(points)
}

fn norm_points(ranks: &[&[NormTime]]) -> Result<Vec<NormPoint>> {
    let first = ranks.first().copied().unwrap_or_default();
    let mut points = Vec::new();
    for (number, norm) in first.iter().enumerate() {
        let all: Vec<Times> = ranks.iter().filter_map(|own| own.get(number)).map(|norm| norm.times).collect();
        let Times { graph, spread, .. } = Times::slowest(&all);
        points.push(NormPoint {
            algorithm: word::<AlgorithmId>(norm.algorithm)?,
            output: word::<FusionId>(norm.output)?,
            fused: norm.fused,
            rows: norm.rows,
            width: norm.width,
            microseconds: rounded(graph),
            spread: rounded(spread),
        });
    }
    Ok(points)
}

/// To a nanosecond: a clock of the device resolves no more.
fn rounded(microseconds: f64) -> f64 {
    (microseconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_sizes_are_those_of_the_machine_or_those_wanted() {
        assert_eq!(world_sizes(&[], 8).unwrap(), [2, 4, 8]);
        assert_eq!(world_sizes(&[], 3).unwrap(), [2]);
        assert_eq!(world_sizes(&[4, 3, 4], 4).unwrap(), [3, 4]);
        assert!(world_sizes(&[4], 2).unwrap_err().to_string().contains("sees 2 GPUs"));
        assert!(world_sizes(&[1], 2).is_err());
    }

    #[test]
    fn a_message_that_one_rank_does_not_take_is_no_figure() {
        let cases = &cases()[..3];
        let times = |graph| Some(Times { graph, spread: 0.1, eager: None });
        let (one, two) = ([times(1.0), None, times(3.0)], [times(2.0), None, times(1.0)]);
        let points = sum_points(cases, &[&one, &two]).unwrap();
        let found: Vec<(&str, u64, f64)> =
            points.iter().map(|point| (point.algorithm.word(), point.bytes, point.microseconds)).collect();
        assert_eq!(found, [("nccl", 1024, 2.0), ("two_shot", 1024, 3.0)]);
    }
}
