//! Sums: right first, then fast.

use std::fmt;

use serde::Serialize;

use super::reference::{bounds, decode, input, sum, tolerance};
use super::timing::{Launches, Times, capture, time};
use super::{MeasureError, Rank};
use crate::collective::Algorithm;
use crate::kernels::{CheckStep, Element, Reduce};

/// One sum.
#[derive(Clone, Copy, Debug)]
pub struct SumCase {
    pub algorithm: Algorithm,
    pub element: Element,
    pub elements: u64,
    pub in_place: bool,
    /// Elements by which input and output begin after a multiple of 16 bytes.
    pub shift: u64,
}

impl fmt::Display for SumCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, element, elements, in_place, shift } = self;
        let place = if *in_place { "in place" } else { "out of place" };
        write!(formatter, "{} of {elements} {}, {place}, {shift} elements off", algorithm.name(), element.name())
    }
}

/// One measured sum.
#[derive(Clone, Debug, Serialize)]
pub struct SumTime {
    pub algorithm: &'static str,
    pub dtype: &'static str,
    pub bytes: u64,
    #[serde(flatten)]
    pub times: Times,
    /// Bytes of the message over time, in GB/s, as a graph.
    pub bandwidth: f64,
}

/// Largest message that is also compared on the host.
const HOST_BYTES: u64 = 1 << 20;

/// Checks each case eagerly and in a replayed graph, with other data each time: on the device bit for bit against the
/// sum in rank order (our algorithms), on the host against a sum in f64. Gives how many sums were compared.
pub fn check_sums(rank: &Rank, cases: &[SumCase]) -> Result<usize, MeasureError> {
    let mut compared = 0;
    for (number, case) in cases.iter().enumerate() {
        if case.algorithm == Algorithm::Nccl && rank.member.nccl.is_none() {
            continue;
        }
        let salt = number as u32 + 1;
        let what = || format!("{case}");
        let padding = 64 + case.shift * case.element.bytes();
        let [input, output] = [(); 2].map(|()| rank.allocate(case.elements * case.element.bytes() + padding));
        let (input, output) = (input?, output?);
        let begin = |address: u64| address + case.shift * case.element.bytes();
        let bytes = case.elements * case.element.bytes();
        let from = begin(input.pointer());
        let to = if case.in_place { from } else { begin(output.pointer()) };
        let message = Reduce { element: case.element, input: from, output: to, bytes };
        let run = || -> Result<(), MeasureError> {
            rank.step(CheckStep::NextRound, 0, 0, 0)?;
            rank.step(CheckStep::Fill(case.element), from, case.elements, salt)?;
            // SAFETY: both places hold the message; all ranks go through the same cases.
            unsafe { rank.member.all_reduce(case.algorithm, &message, salt, None) }.map_err(MeasureError::from)
        };
        let compare = || rank.step(CheckStep::Compare(case.element), to, case.elements, salt);
        let exact = case.algorithm != Algorithm::Nccl;
        run()?;
        rank.wait(|_| what())?;
        compare_on_host(rank, case, to, salt)?;
        if exact {
            compare()?;
            let graph = capture(rank, 1, |_| run().and_then(|()| compare()))?;
            for _ in 0..3 {
                graph.launch()?;
            }
        }
        rank.wait(|_| what())?;
        let [_, wrong, first] = rank.findings()?;
        if wrong > 0 {
            let (rank, first) = (rank.rank(), first - 1);
            return Err(MeasureError::Wrong(format!(
                "{case}: {wrong} wrong elements on rank {rank}, the first is {first}"
            )));
        }
        compared += if exact { 4 } else { 1 };
        rank.together.wait()?;
    }
    Ok(compared)
}

fn compare_on_host(rank: &Rank, case: &SumCase, at: u64, salt: u32) -> Result<(), MeasureError> {
    let bytes = case.elements * case.element.bytes();
    if bytes > HOST_BYTES {
        return Ok(());
    }
    let round = rank.findings()?[0];
    let output = rank.read::<u8>(at, bytes as usize)?;
    for index in 0..case.elements {
        let value = f64::from(decode(case.element, &output, index as usize));
        let expected = sum(case.element, round, salt, rank.ranks(), index);
        let within = if matches!(case.algorithm, Algorithm::Multimem | Algorithm::MultimemSimulated) {
            let values: Vec<f32> =
                (0..rank.ranks()).map(|rank| input(case.element, round, salt, rank, index)).collect();
            let [least, most] = bounds(case.element, &values).map(f64::from);
            (least..=most).contains(&value)
        } else {
            (value - expected).abs() <= tolerance(case.element, rank.ranks())
        };
        if !within {
            let rank = rank.rank();
            return Err(MeasureError::Wrong(format!(
                "{case}: element {index} of rank {rank} is {value}, not {expected}"
            )));
        }
    }
    Ok(())
}

/// Times each case on `rank`, out of place. None where the algorithm does not take the message.
pub fn time_sums(rank: &Rank, cases: &[SumCase], launches: Launches) -> Result<Vec<Option<Times>>, MeasureError> {
    let largest = cases.iter().map(|case| case.elements * case.element.bytes()).max().unwrap_or(0);
    let (input, output) = (rank.allocate(largest)?, rank.allocate(largest)?);
    let mut times = Vec::with_capacity(cases.len());
    for case in cases {
        let bytes = case.elements * case.element.bytes();
        let possible = case.algorithm != Algorithm::Nccl || rank.member.nccl.is_some();
        if !possible || !rank.member.fits(case.algorithm, bytes) {
            times.push(None);
            continue;
        }
        rank.step(CheckStep::Fill(case.element), input.pointer(), case.elements, 1)?;
        let message = Reduce { element: case.element, input: input.pointer(), output: output.pointer(), bytes };
        // SAFETY: both places hold the largest message; all ranks go through the same cases.
        let launch =
            || unsafe { rank.member.all_reduce(case.algorithm, &message, 0, None) }.map_err(MeasureError::from);
        times.push(Some(time(rank, launches, launch)?));
    }
    Ok(times)
}

impl SumTime {
    pub fn new(case: &SumCase, times: Times) -> Self {
        let bytes = case.elements * case.element.bytes();
        let bandwidth = bytes as f64 / times.graph.max(1e-9) / 1e3;
        Self { algorithm: case.algorithm.name(), dtype: case.element.name(), bytes, times, bandwidth }
    }
}
