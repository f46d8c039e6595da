//! Many collectives in a row: sizes, algorithms, formats and grids at random, ranks that come late, other data in every
//! replay, every sum compared bit for bit on the device.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::timing::capture;
use super::{MeasureError, Rank};
use crate::collective::Algorithm;
use crate::device::Allocation;
use crate::kernels::{CheckStep, Element, Reduce};

/// What is soaked.
#[derive(Clone, Copy, Debug)]
pub struct SoakPlan {
    pub seed: u64,
    pub duration: Duration,
    /// Calls in a graph.
    pub calls: usize,
    /// Largest message in bytes.
    pub largest: u64,
    /// How late a rank comes at most, in nanoseconds; before every fourth call.
    pub delay: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SoakReport {
    /// Collectives that ran and were compared.
    pub collectives: u64,
    pub graphs: u64,
    pub replays: u64,
}

/// Algorithms that take turns at random.
const SOAKED: [Algorithm; 4] =
    [Algorithm::OneShot, Algorithm::TwoShot, Algorithm::OneShot, Algorithm::MultimemSimulated];

/// Replays of one graph before another is made.
const REPLAYS: u64 = 20;

/// Soaks until the time is over. Errors: a wrong sum, or a rank that did not come.
pub fn soak(rank: &Rank, plan: &SoakPlan) -> Result<SoakReport, MeasureError> {
    let mut report = SoakReport::default();
    let room = (plan.largest + 64) * plan.calls as u64;
    let (input, output) = (rank.allocate(room)?, rank.allocate(room)?);
    // The ranks agree on calls; grids are each rank's own affair.
    let mut common = Chance(plan.seed);
    let mut own = Chance(plan.seed ^ (rank.rank() as u64 + 1) << 32);
    let begin = Instant::now();
    loop {
        // Rank 0's clock decides for all.
        let go_on = rank.together.agree(rank.rank(), begin.elapsed() < plan.duration)?;
        if !go_on {
            return Ok(report);
        }
        let calls: Vec<Call> =
            (0..plan.calls).map(|number| Call::random(&mut common, &mut own, plan, number)).collect();
        let graph = capture(rank, 1, |_| launch_all(rank, plan, &calls, (&input, &output)))?;
        rank.together.wait()?;
        for _ in 0..REPLAYS {
            graph.launch()?;
        }
        let name = |call: u32| match calls.get(call as usize) {
            Some(Call { algorithm, element, elements, .. }) => {
                format!("call {call}, {} of {elements} {}", algorithm.name(), element.name())
            }
            None => format!("call {call}"),
        };
        rank.wait(name)?;
        let [_, wrong, first] = rank.findings()?;
        if wrong > 0 {
            let (rank, seed, graph) = (rank.rank(), plan.seed, report.graphs);
            let what =
                format!("graph {graph} of seed {seed}: {wrong} wrong elements on rank {rank}, first {}", first - 1);
            return Err(MeasureError::Wrong(what));
        }
        report.graphs += 1;
        report.replays += REPLAYS;
        report.collectives += REPLAYS * plan.calls as u64;
    }
}

/// One collective of a graph.
#[derive(Clone, Copy, Debug)]
struct Call {
    algorithm: Algorithm,
    element: Element,
    elements: u64,
    in_place: bool,
    blocks: Option<[u32; 2]>,
    late: bool,
}

impl Call {
    fn random(common: &mut Chance, own: &mut Chance, plan: &SoakPlan, number: usize) -> Self {
        let element = Element::ALL[common.below(3) as usize];
        // Sizes over all magnitudes.
        let bits = common.below(u64::from(plan.largest.ilog2())) + 1;
        let elements = (common.below(1 << bits) / element.bytes()).max(1);
        let algorithm = SOAKED[common.below(SOAKED.len() as u64) as usize];
        let in_place = common.below(2) == 0;
        let blocks = [own.below(64) as u32 + 1, 32 * (own.below(12) as u32 + 1)];
        let blocks = (own.below(3) > 0).then_some(blocks);
        Self { algorithm, element, elements, in_place, blocks, late: number.is_multiple_of(4) }
    }
}

fn launch_all(
    rank: &Rank,
    plan: &SoakPlan,
    calls: &[Call],
    (input, output): (&Allocation, &Allocation),
) -> Result<(), MeasureError> {
    let place = |number: usize| number as u64 * (plan.largest + 64) / 16 * 16;
    rank.step(CheckStep::NextRound, 0, 0, 0)?;
    for (number, call) in calls.iter().enumerate() {
        rank.step(CheckStep::Fill(call.element), input.pointer() + place(number), call.elements, number as u32)?;
    }
    for (number, call) in calls.iter().enumerate() {
        if call.late {
            rank.delay(plan.delay, number as u32)?;
        }
        let from = input.pointer() + place(number);
        let to = if call.in_place { from } else { output.pointer() + place(number) };
        let bytes = call.elements * call.element.bytes();
        let message = Reduce { element: call.element, input: from, output: to, bytes };
        // SAFETY: every call has a place of the largest message; the ranks made the same calls.
        unsafe { rank.member.all_reduce(call.algorithm, &message, number as u32, call.blocks)? };
    }
    for (number, call) in calls.iter().enumerate() {
        let data = if call.in_place { input } else { output };
        rank.step(CheckStep::Compare(call.element), data.pointer() + place(number), call.elements, number as u32)?;
    }
    Ok(())
}

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks draw the same calls, with grids of their own, and every kind of call comes up.
    #[test]
    fn ranks_agree_on_calls_and_differ_in_grids() {
        let plan = SoakPlan { seed: 7, duration: Duration::ZERO, calls: 64, largest: 1 << 20, delay: 0 };
        let draw = |rank: u64| -> Vec<Call> {
            let (mut common, mut own) = (Chance(plan.seed), Chance(plan.seed ^ (rank + 1) << 32));
            (0..200).map(|number| Call::random(&mut common, &mut own, &plan, number)).collect()
        };
        let (one, two) = (draw(0), draw(1));
        let same = |call: &Call| (call.algorithm, call.element, call.elements, call.in_place);
        assert!(one.iter().zip(&two).all(|(one, two)| same(one) == same(two)));
        assert!(one.iter().zip(&two).any(|(one, two)| one.blocks != two.blocks));
        assert!(one.iter().all(|call| call.elements > 0 && call.elements * call.element.bytes() <= plan.largest));
        for element in Element::ALL {
            assert!(one.iter().any(|call| call.element == element && call.algorithm == Algorithm::TwoShot));
        }
    }
}
