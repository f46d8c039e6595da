//! What the plan chose, tried before the first step: on the group that will serve, eagerly and in a replayed recording,
//! with other data each time, against sums in double precision on the host.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::backend::{AddNorm, Backend, BackendError, PassKey};
use engine::collective::{AllGather, Call, Collective, NO_FUSION, Operation, RankRows, Rung, Site};
use engine::types::Phase;

use super::rank::CudaRank;
use crate::backend::CudaBackend;
use crate::device::{Allocation, Purpose, Reach, Recordings};
use crate::kernels::{Check, CheckStep, Element, check};
use crate::measure::reference::{input, sum, tolerance};

/// How long ranks wait for each other while they are tested: they start together.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of the largest message that is tested, and rows of the largest fused one.
const LARGEST: u64 = 256 << 10;
const ROWS: usize = 24;
const EPSILON: f32 = 1e-5;
const REPLAYS: u32 = 2;
/// Names of inputs that are the same on every rank.
const RESIDUAL: u32 = 1 << 20;

/// An algorithm that gave a wrong result, or none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the self-test of {algorithm} failed: {message}")]
pub struct SelfTestFailure {
    /// The database's word.
    pub algorithm: String,
    pub message: String,
}

/// Tests every algorithm of the plan on this rank. All ranks do so together.
pub(super) fn self_test(rank: &mut CudaRank, backend: &mut CudaBackend) -> Result<usize, SelfTestFailure> {
    let group = std::sync::Arc::clone(&rank.member.group);
    let serving = rank.shared.options.patience;
    let cases = cases(rank);
    let words =
        Allocation::zeroed(backend.gpu().stream.as_ref(), &backend.gpu().account, 64, Purpose::Workspace, "self-test");
    let failure = |algorithm: &str, message: String| SelfTestFailure { algorithm: algorithm.to_owned(), message };
    let words = words.map_err(|error| failure("", error.to_string()))?;
    group.set_patience(PATIENCE.min(serving));
    let mut test = Test { rank, backend, words, round: 0 };
    for (number, (operation, rung)) in cases.iter().enumerate() {
        let run = test.case(*operation, rung, 1 + number as u32 * 64);
        run.map_err(|message| failure(&rung.algorithm, format!("{} by {rung}: {message}", operation.name())))?;
    }
    test.rank.shared.meet().map_err(|message| failure("", message))?;
    group.set_patience(serving);
    Ok(cases.len())
}

/// Each operation, algorithm and fusion of the plan once, with its largest message.
fn cases(rank: &CudaRank) -> Vec<(Operation, Rung)> {
    let mut largest = BTreeMap::new();
    for (operation, rung) in rank.shared.options.plan.rungs() {
        let key = (operation, rung.algorithm.clone(), rung.fusion.clone());
        let up_to: &mut u64 = largest.entry(key).or_default();
        *up_to = rung.up_to.max(*up_to);
    }
    let case = |((operation, algorithm, fusion), up_to)| (operation, Rung { up_to, algorithm, fusion });
    largest.into_iter().map(case).collect()
}

struct Test<'a> {
    rank: &'a mut CudaRank,
    backend: &'a mut CudaBackend,
    /// The round that the device counts.
    words: Allocation,
    /// The same on the host.
    round: u32,
}

type Failure = String;

impl Test<'_> {
    fn case(&mut self, operation: Operation, rung: &Rung, salt: u32) -> Result<(), Failure> {
        let most = (rung.up_to.min(LARGEST) / Element::Bf16.bytes()).max(1) as usize;
        match operation {
            Operation::AllGather => (0..2).try_for_each(|turn| self.gather(rung, 1 + 2 * turn, salt + turn as u32)),
            Operation::Broadcast => Ok(()),
            Operation::AllReduce if *rung.fusion != *NO_FUSION => {
                let rows = (most / self.rank.shared.options.hidden).clamp(1, ROWS);
                [1, rows].into_iter().zip(salt..).try_for_each(|(rows, salt)| self.fused(rung, rows, salt))
            }
            Operation::AllReduce => [most.min(1021), most]
                .into_iter()
                .zip(salt..)
                .try_for_each(|(elements, salt)| self.sum(rung, elements, salt)),
        }
    }

    /// Runs `body` eagerly, then recorded and replayed; `compare` looks at each result.
    fn run(
        &mut self,
        body: &mut dyn FnMut(&mut Self) -> Result<(), Failure>,
        compare: &mut dyn FnMut(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.rank.shared.meet()?;
        self.round += 1;
        body(self)?;
        compare(self)?;
        let mut recordings = Recordings::default();
        let result = self.replay(&mut recordings, body, compare);
        if self.rank.shared.aborted_nccl() {
            recordings.forget();
        }
        result
    }

    fn replay(
        &mut self,
        recordings: &mut Recordings,
        body: &mut dyn FnMut(&mut Self) -> Result<(), Failure>,
        compare: &mut dyn FnMut(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let said = |error: BackendError| error.to_string();
        let stream = std::sync::Arc::clone(&self.backend.gpu().stream);
        let key = PassKey { name: "self-test", phase: Phase::Decode, rows: 0, logit_rows: 0 };
        recordings.begin(&stream).map_err(said)?;
        if let Err(failure) = body(self) {
            Recordings::abandon(&stream);
            return Err(failure);
        }
        recordings.keep(&stream, key, Reach::Any).map_err(said)?;
        self.rank.shared.meet()?;
        for replay in 1..=REPLAYS {
            self.round += 1;
            recordings.replay(key, Reach::Any).map_err(said)?;
            compare(self).map_err(|failure| format!("replay {replay}: {failure}"))?;
        }
        Ok(())
    }

    /// A step of the check's kernels on `elements` elements at `data`, as `rank` makes them.
    fn step(&self, step: CheckStep, data: u64, elements: usize, (salt, rank): (u32, usize)) -> Result<(), Failure> {
        let (round, wrong) = (self.words.pointer(), self.words.pointer() + 8);
        let (rank, ranks) = (rank as u32, self.rank.world_size() as u32);
        let arguments = Check { round, data, wrong, elements: elements as u64, salt, rank, ranks, delay: 0 };
        let member = &self.rank.member;
        // SAFETY: callers name buffers of so many elements; the words were allocated for this.
        unsafe { check(&member.launcher, &member.kernels, step, &arguments) }.map_err(|error| error.to_string())
    }

    fn next_round(&self) -> Result<(), Failure> {
        self.step(CheckStep::NextRound, 0, 0, (0, 0))
    }

    fn read(&mut self, buffer: &<CudaBackend as Backend>::Buffer, count: usize) -> Result<Vec<f32>, Failure> {
        let mut values = vec![0.0; count];
        self.backend.read(buffer, 0, &mut values).map_err(|error| error.to_string())?;
        Ok(values)
    }

    fn buffer(&mut self, elements: usize) -> Result<<CudaBackend as Backend>::Buffer, Failure> {
        self.backend.allocate_buffer(elements).map_err(|error| error.to_string())
    }

    fn sum(&mut self, rung: &Rung, elements: usize, salt: u32) -> Result<(), Failure> {
        let data = std::cell::RefCell::new(self.buffer(elements)?);
        let (own, ranks) = (self.rank.rank(), self.rank.world_size());
        let mut body = |test: &mut Self| {
            let buffer = &mut *data.borrow_mut();
            test.next_round()?;
            test.step(CheckStep::Fill(Element::Bf16), buffer.pointer(), elements, (salt, own))?;
            let call = Call { operation: Operation::AllReduce, site: Site::MlpOutput, rung };
            let rows = RankRows { buffer, rows: 1, width: elements };
            test.rank.all_reduce(test.backend, call, rows).map_err(|error| error.to_string())
        };
        let mut compare = |test: &mut Self| {
            let found = test.read(&data.borrow(), elements)?;
            let expected = |index| sum(Element::Bf16, test.round, salt, ranks, index as u64);
            differ(&found, expected, |_| tolerance(Element::Bf16, ranks))
        };
        self.run(&mut body, &mut compare)
    }

    fn gather(&mut self, rung: &Rung, rows: usize, salt: u32) -> Result<(), Failure> {
        let (own, ranks) = (self.rank.rank(), self.rank.world_size());
        let total = self.rank.shared.options.vocabulary;
        let width = total.div_ceil(ranks);
        let columns = |rank: usize| width.min(total.saturating_sub(rank * width));
        let logits =
            |test: &mut Self, elements| test.backend.allocate_logits(elements).map_err(|error| error.to_string());
        let part = logits(self, rows * width)?;
        let whole = std::cell::RefCell::new(logits(self, rows * total)?);
        let mut body = |test: &mut Self| {
            test.next_round()?;
            test.step(CheckStep::Fill(Element::F32), part.pointer(), rows * columns(own), (salt, own))?;
            let call = Call { operation: Operation::AllGather, site: Site::LogitsGather, rung };
            let output = &mut *whole.borrow_mut();
            let gather = AllGather { input: &part, output, rows, width, total };
            test.rank.all_gather(test.backend, call, gather).map_err(|error| error.to_string())
        };
        let mut compare = |test: &mut Self| {
            let found = test.read(&whole.borrow(), rows * total)?;
            let expected = |index: usize| {
                let (row, rank, column) = (index / total, index % total / width, index % total % width);
                input(Element::F32, test.round, salt, rank, (row * columns(rank) + column) as u64).into()
            };
            differ(&found, expected, |_| 0.0)
        };
        self.run(&mut body, &mut compare)
    }

    fn fused(&mut self, rung: &Rung, rows: usize, salt: u32) -> Result<(), Failure> {
        let (own, ranks, width) = (self.rank.rank(), self.rank.world_size(), self.rank.shared.options.hidden);
        let weight: Vec<f32> = (0..width).map(|column| 0.5 + (column % 7) as f32 / 4.0).collect();
        let scale = self.backend.load_vector(&weight).map_err(|error| error.to_string())?;
        let elements = rows * width;
        let buffers = [self.buffer(elements)?, self.buffer(elements)?, self.buffer(elements)?];
        let buffers = std::cell::RefCell::new(buffers);
        let mut body = |test: &mut Self| {
            let [addend, residual, output] = &mut *buffers.borrow_mut();
            test.next_round()?;
            test.step(CheckStep::Fill(Element::Bf16), addend.pointer(), elements, (salt, own))?;
            test.step(CheckStep::Fill(Element::Bf16), residual.pointer(), elements, (salt + RESIDUAL, 0))?;
            let call = Call { operation: Operation::AllReduce, site: Site::MlpOutput, rung };
            let arguments = AddNorm { addend, residual, weight: &scale, epsilon: EPSILON, output, rows };
            test.rank.all_reduce_add_norm(test.backend, call, arguments).map_err(|error| error.to_string())
        };
        let mut compare = |test: &mut Self| {
            let [_, residual, output] = &*buffers.borrow();
            let (residual, output) = (test.read(residual, elements)?, test.read(output, elements)?);
            let expected = |index: usize| {
                let before = input(Element::Bf16, test.round, salt + RESIDUAL, 0, index as u64);
                f64::from(before) + sum(Element::Bf16, test.round, salt, ranks, index as u64)
            };
            // The sum is rounded, and then what it is added to: twice half a step of numbers of up to `ranks + 1`.
            differ(&residual, expected, |_| 2.0 * tolerance(Element::Bf16, ranks + 1))?;
            let factors: Vec<f64> = residual.chunks_exact(width).map(factor).collect();
            let expected =
                |index: usize| f64::from(residual[index]) * factors[index / width] * f64::from(weight[index % width]);
            differ(&output, expected, |expected| expected.abs() / 200.0 + 1e-6)
        };
        self.run(&mut body, &mut compare)
    }
}

/// One over the root of the mean square.
fn factor(row: &[f32]) -> f64 {
    let mean = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / row.len() as f64;
    1.0 / (mean + f64::from(EPSILON)).sqrt()
}

/// Says which value is further from what is expected than it may be.
fn differ(found: &[f32], expected: impl Fn(usize) -> f64, tolerance: impl Fn(f64) -> f64) -> Result<(), Failure> {
    for (index, found) in found.iter().enumerate() {
        let expected = expected(index);
        let off = (f64::from(*found) - expected).abs();
        if off.is_nan() || off > tolerance(expected) {
            return Err(format!("value {index} is {found}, not {expected}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_named_and_nothing_is_equal_to_nan() {
        assert_eq!(differ(&[1.0, 2.0], |index| index as f64 + 1.0, |_| 0.0), Ok(()));
        let wrong = differ(&[1.0, 2.5], |index| index as f64 + 1.0, |_| 0.25);
        assert_eq!(wrong, Err("value 1 is 2.5, not 2".to_owned()));
        assert!(differ(&[f32::NAN], |_| 0.0, |_| f64::INFINITY).is_err());
    }

    #[test]
    fn a_norm_brings_a_row_to_unit_mean_square() {
        let row = [3.0, -4.0];
        let mean = row.iter().map(|value| (f64::from(*value) * factor(&row)).powi(2)).sum::<f64>() / 2.0;
        assert!((mean - 1.0).abs() < 1e-5);
    }
}
