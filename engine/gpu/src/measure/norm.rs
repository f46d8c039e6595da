//! Sums with residual and norm: right first, then fast.

use std::fmt;

use serde::Serialize;

use super::quantised::compare_output;
use super::reference::{decode, input, rounded, rounded_sum};
use super::timing::{Launches, Times, capture, time};
use super::{MeasureError, Rank};
use crate::collective::{Algorithm, fusion_name};
use crate::device::Allocation;
use crate::kernels::{CheckStep, Element, Norm, NormOutput, Reduce, ReduceNorm, Shots, add_rms_norm};

const EPSILON: f32 = 1e-5;

/// One fused sum.
#[derive(Clone, Copy, Debug)]
pub struct NormCase {
    pub shots: Shots,
    pub element: Element,
    pub output: NormOutput,
    pub rows: u32,
    pub width: u32,
}

impl fmt::Display for NormCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shots, element, output, rows, width } = self;
        let shots = match shots {
            Shots::One => "one_shot",
            Shots::Two => "two_shot",
        };
        write!(formatter, "{} by {shots}, {rows} x {width} {}", fusion_name(*output), element.name())
    }
}

/// One measured way to sum and normalise.
#[derive(Clone, Debug, Serialize)]
pub struct NormTime {
    pub algorithm: &'static str,
    /// The database's word for what the fused kernel does.
    pub output: &'static str,
    /// One kernel; otherwise the sum's kernel and then the norm's.
    pub fused: bool,
    pub rows: u32,
    pub width: u32,
    #[serde(flatten)]
    pub times: Times,
}

/// Buffers of one fused sum.
pub(super) struct Buffers {
    pub addend: Allocation,
    pub residual: Allocation,
    pub weight: Allocation,
    pub output: Allocation,
    pub scale: Allocation,
    pub block_scales: Allocation,
}

/// Names of the inputs.
const RESIDUAL: u32 = 1 << 20;
const WEIGHT: u32 = 2 << 20;
/// The scale that quantised outputs are given: one that fills the format's range with norms of these inputs.
const fn given_scale(output: NormOutput) -> f32 {
    match output {
        NormOutput::Fp8Tensor => 0.01,
        NormOutput::Element | NormOutput::Fp8Token => 0.0,
        NormOutput::Nvfp4 => 700.0,
    }
}

impl Buffers {
    /// Weights are written here and stay: no kernel writes them, so kernels may read them before they wait.
    fn new(rank: &Rank, case: &NormCase, salt: u32) -> Result<Self, MeasureError> {
        let elements = u64::from(case.rows) * u64::from(case.width);
        let bytes = elements * case.element.bytes() + 16;
        let scale = rank.allocate(u64::from(case.rows) * 4)?;
        rank.write(scale.pointer(), &[given_scale(case.output)])?;
        let weight = rank.allocate(u64::from(case.width) * 4)?;
        rank.write(weight.pointer(), &weights(case.width, salt))?;
        Ok(Self {
            addend: rank.allocate(bytes)?,
            residual: rank.allocate(bytes)?,
            weight,
            output: rank.allocate(bytes)?,
            scale,
            block_scales: rank.allocate(elements)?,
        })
    }

    fn norm(&self, case: &NormCase) -> ReduceNorm {
        ReduceNorm {
            element: case.element,
            format: case.output,
            addend: self.addend.pointer(),
            residual: self.residual.pointer(),
            weight: self.weight.pointer(),
            output: self.output.pointer(),
            scale: self.scale.pointer(),
            block_scales: self.block_scales.pointer(),
            rows: case.rows,
            width: case.width,
            epsilon: EPSILON,
        }
    }

    /// New inputs: the addend differs by rank, the rest does not.
    fn fill(&self, rank: &Rank, case: &NormCase, salt: u32) -> Result<(), MeasureError> {
        let elements = u64::from(case.rows) * u64::from(case.width);
        rank.step(CheckStep::NextRound, 0, 0, 0)?;
        rank.step(CheckStep::Fill(case.element), self.addend.pointer(), elements, salt)?;
        rank.step_as(0, CheckStep::Fill(case.element), self.residual.pointer(), elements, salt + RESIDUAL, 0)
    }
}

/// The same in every round.
fn weights(width: u32, salt: u32) -> Vec<f32> {
    (0..width).map(|column| input(Element::F32, 0, salt + WEIGHT, 0, column.into())).collect()
}

/// Checks each case eagerly and in a replayed graph with other data, against the definition written out on the host.
pub fn check_norms(rank: &Rank, cases: &[NormCase]) -> Result<usize, MeasureError> {
    let mut compared = 0;
    for (number, case) in cases.iter().enumerate() {
        let salt = number as u32 + 1;
        let buffers = Buffers::new(rank, case, salt)?;
        let run = || -> Result<(), MeasureError> {
            buffers.fill(rank, case, salt)?;
            // SAFETY: buffers of the case's size; all ranks go through the same cases.
            unsafe { rank.member.all_reduce_norm(case.shots, &buffers.norm(case), salt) }.map_err(MeasureError::from)
        };
        run()?;
        rank.wait(|_| format!("{case}"))?;
        compare(rank, case, &buffers, salt)?;
        let graph = capture(rank, 1, |_| run())?;
        for _ in 0..2 {
            graph.launch()?;
            rank.wait(|_| format!("{case}"))?;
            compare(rank, case, &buffers, salt)?;
        }
        compared += 3;
        rank.together.wait()?;
    }
    Ok(compared)
}

/// The residual must have the exact bits; the output is compared with a norm in f64 of that residual.
fn compare(rank: &Rank, case: &NormCase, buffers: &Buffers, salt: u32) -> Result<(), MeasureError> {
    let round = rank.findings()?[0];
    let (rows, width) = (case.rows as usize, case.width as usize);
    let bytes = rows * width * case.element.bytes() as usize;
    let residual = rank.read::<u8>(buffers.residual.pointer(), bytes)?;
    let weight: Vec<f64> = weights(case.width, salt).into_iter().map(f64::from).collect();
    let mut expected = Vec::with_capacity(rows * width);
    for row in 0..rows {
        let values: Vec<f64> = (row * width..(row + 1) * width)
            .map(|index| {
                let sum = rounded_sum(case.element, round, salt, rank.ranks(), index as u64);
                let before = input(case.element, round, salt + RESIDUAL, 0, index as u64);
                let after = rounded(case.element, before + sum);
                let found = decode(case.element, &residual, index);
                let wrong = || format!("{case}: residual {index} of rank {} is {found}, not {after}", rank.rank());
                if found == after { Ok(f64::from(after)) } else { Err(MeasureError::Wrong(wrong())) }
            })
            .collect::<Result<_, _>>()?;
        let mean = values.iter().map(|value| value * value).sum::<f64>() / width as f64;
        let factor = 1.0 / (mean + f64::from(EPSILON)).sqrt();
        expected.extend(values.iter().zip(&weight).map(|(value, weight)| value * factor * weight));
    }
    compare_output(rank, case, buffers, &expected, given_scale(case.output))
}

/// Times fused ways to each of `outputs`, and unfused ones to bf16, for each number of rows of `width` bf16 columns. None
/// where a fused sum does not fit.
pub fn time_norms(
    rank: &Rank,
    width: u32,
    rows: &[u32],
    outputs: &[NormOutput],
    launches: Launches,
) -> Result<Vec<NormTime>, MeasureError> {
    let mut times = Vec::new();
    for &rows in rows {
        let case = NormCase { shots: Shots::One, element: Element::Bf16, output: NormOutput::Element, rows, width };
        let buffers = Buffers::new(rank, &case, 1)?;
        buffers.fill(rank, &case, 1)?;
        let norm = buffers.norm(&case);
        for algorithm in Algorithm::ALL {
            if algorithm == Algorithm::Nccl && rank.member.nccl.is_none() {
                continue;
            }
            let bytes = u64::from(rows) * u64::from(width) * 2;
            let mut add = |output, fused, times_of| {
                let (algorithm, output) = (algorithm.name(), fusion_name(output));
                times.push(NormTime { algorithm, output, fused, rows, width, times: times_of });
            };
            if rank.member.fits(algorithm, bytes) {
                let launch = || unfused(rank, algorithm, &norm, bytes);
                add(NormOutput::Element, false, time(rank, launches, launch)?);
            }
            let Some(shots) =
                algorithm.shots().filter(|shots| rank.member.norm_fits(*shots, case.element, rows, width))
            else {
                continue;
            };
            for &output in outputs {
                rank.write(buffers.scale.pointer(), &[given_scale(output)])?;
                let norm = ReduceNorm { format: output, ..norm };
                // SAFETY: buffers of the case's size, which every output fits in; all ranks go through the same cases.
                let launch = || unsafe { rank.member.all_reduce_norm(shots, &norm, 0) }.map_err(MeasureError::from);
                add(output, true, time(rank, launches, launch)?);
            }
        }
    }
    Ok(times)
}

/// The sum, out of place so that values stay small, then the norm's own kernel.
fn unfused(rank: &Rank, algorithm: Algorithm, norm: &ReduceNorm, bytes: u64) -> Result<(), MeasureError> {
    let ReduceNorm { element, addend, residual, weight, output, rows, width, epsilon, .. } = *norm;
    let sum = Reduce { element, input: addend, output, bytes };
    let norm = Norm { input: output, residual, weight, output, width, epsilon, rows };
    // SAFETY: all buffers hold the whole matrix.
    unsafe {
        rank.member.all_reduce(algorithm, &sum, 0, None)?;
        Ok(add_rms_norm(&rank.member.launcher, &rank.kernels, &norm)?)
    }
}
