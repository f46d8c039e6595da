//! Whether speculation pays, and how much to draft.
//!
//! Per batch size the times of cycles are measured at each width, and acceptance at each position. A width pays where
//! its tokens per cycle, over its time, exceed those of a plain decode: the break-even is the ratio of the times. The
//! width with the best rate is taken; widths that nobody measured lately are tried for a few cycles now and then, so
//! that speculation which was switched off comes back when it pays again. No choice changes a token.

mod acceptance;
mod mean;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use acceptance::Acceptance;
use mean::Mean;
pub use report::{PaceReport, WidthReport};

use super::shape::DraftShape;
use crate::types::{EntryOutput, StepTiming};

/// Cycles of a width before it is judged.
const TRIAL: u64 = 4;
/// Fewest and most steps between two looks at widths that are not the chosen one. What was dear once may be so no longer.
const LOOK_INTERVALS: [u64; 2] = [128, 512];
/// Cycles of such a look.
const LOOK: u64 = 2;
/// The part of its time that an engine may lose by looks, as far as these intervals allow: the dearer one is, the later it
/// comes.
const LOOKING: f64 = 0.005;
/// A new width must be so much better than the one in use.
const MARGIN: f64 = 1.03;

/// How to pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceSettings {
    /// The widest that is drafted.
    pub shape: DraftShape,
    /// Choose the width; otherwise it is always the widest.
    pub adaptive: bool,
}

/// A step that came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacedStep {
    pub sequences: usize,
    /// Tokens that each sequence verified, 1 for plain decodes; none where prompts or several widths were in the step.
    pub width: Option<usize>,
    pub seconds: f64,
    pub timing: StepTiming,
}

/// Times of one width at one batch size.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    cycle: Mean,
    draft: Mean,
    target: Mean,
    follow: Mean,
    /// Tokens of one sequence in one cycle.
    tokens: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    width: usize,
    /// Steps since the last look at another width.
    steps: u64,
    /// The width that is looked at, and for how many more steps.
    look: Option<(usize, u64)>,
    looked: usize,
}

/// Measurements and choices of one engine.
#[derive(Clone, Debug)]
pub struct Pace {
    settings: PaceSettings,
    acceptance: Acceptance,
    cells: BTreeMap<(usize, usize), Cell>,
    choices: BTreeMap<usize, Choice>,
}

impl Pace {
    pub fn new(settings: PaceSettings) -> Self {
        let acceptance = Acceptance::new(settings.shape.verify_tokens);
        Self { settings, acceptance, cells: BTreeMap::new(), choices: BTreeMap::new() }
    }

    pub fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// Batches of about the same size share their measurements: up to a power of two.
    fn bucket(sequences: usize) -> usize {
        sequences.max(1).next_power_of_two()
    }

    /// Widths that can be chosen, widest first. Trees of other widths than the one asked for are other trees, so a tree
    /// is drafted whole or not at all.
    fn widths(&self) -> Vec<usize> {
        let DraftShape { topk, verify_tokens, .. } = self.settings.shape;
        if topk > 1 { vec![verify_tokens, 1] } else { (1..=verify_tokens).rev().collect() }
    }

    /// Takes in what a step brought.
    pub fn observe<'a>(&mut self, step: &PacedStep, entries: impl Iterator<Item = &'a EntryOutput>) {
        let (mut tokens, mut sequences) = (0, 0);
        for entry in entries {
            tokens += entry.tokens.len();
            sequences += 1;
            if entry.drafted > 0 {
                self.acceptance.add(entry.drafted as usize, entry.accepted as usize);
            }
        }
        let Some(width) = step.width.filter(|_| sequences > 0) else { return };
        let cell = self.cells.entry((Self::bucket(step.sequences), width)).or_default();
        let StepTiming { draft, target, follow, caught_up } = step.timing;
        cell.cycle.add((step.seconds - caught_up).max(0.0));
        cell.tokens.add(tokens as f64 / sequences as f64);
        // What was made up for earlier steps may be in these.
        if caught_up == 0.0 {
            cell.draft.add(draft);
            cell.target.add(target);
            cell.follow.add(follow);
        }
    }

    /// Tokens to verify in the next step of so many sequences, root included; 1 for plain decodes.
    pub fn width(&mut self, sequences: usize) -> usize {
        let (bucket, widths) = (Self::bucket(sequences), self.widths());
        if !self.settings.adaptive {
            return self.settings.shape.verify_tokens;
        }
        let fresh = |cells: &BTreeMap<_, Cell>, width| cells.get(&(bucket, width)).map_or(0, |cell| cell.cycle.count());
        if let Some(width) = widths.iter().find(|width| fresh(&self.cells, **width) < TRIAL) {
            return *width;
        }
        let best = self.best(bucket, &widths);
        let choice = self.choices.entry(bucket).or_default();
        if choice.width != best {
            tracing::info!(sequences = bucket, from = choice.width, to = best, "speculation: tokens to verify");
            choice.width = best;
        }
        let next = choice.looks_next(&widths);
        let interval = self.interval(bucket, best, next);
        self.choices.entry(bucket).or_default().next(next, interval, &widths)
    }

    /// Steps of the width in use before a look at another one.
    fn interval(&self, bucket: usize, current: usize, other: usize) -> u64 {
        let [own, others] = [current, other].map(|width| self.seconds(bucket, width));
        let share = self.rate(bucket, other) / self.rate(bucket, current).max(1e-9);
        let lost = LOOK as f64 * others * (1.0 - share).max(0.0);
        let [fewest, most] = LOOK_INTERVALS;
        ((lost / (LOOKING * own)) as u64).clamp(fewest, most)
    }

    /// The width of the best rate; the one in use unless another one is clearly better.
    fn best(&self, bucket: usize, widths: &[usize]) -> usize {
        let rate = |width| self.rate(bucket, width);
        let current = self.choices.get(&bucket).map_or(0, |choice| choice.width);
        let best = widths.iter().copied().max_by(|left, right| rate(*left).total_cmp(&rate(*right)));
        let best = best.unwrap_or(1);
        if current > 0 && rate(best) < rate(current) * MARGIN { current } else { best }
    }

    /// Expected tokens a second of one sequence.
    fn rate(&self, bucket: usize, width: usize) -> f64 {
        self.expected_tokens(bucket, width) / self.seconds(bucket, width)
    }

    /// Seconds of a cycle; no end of them where none was measured.
    fn seconds(&self, bucket: usize, width: usize) -> f64 {
        self.cells.get(&(bucket, width)).map_or(f64::INFINITY, |cell| cell.cycle.value().max(1e-9))
    }

    /// Tokens of a cycle: of a chain from the acceptance at each position, of a tree as measured.
    fn expected_tokens(&self, bucket: usize, width: usize) -> f64 {
        if width == 1 {
            return 1.0;
        }
        let measured = self.cells.get(&(bucket, width)).map_or(1.0, |cell| cell.tokens.value());
        if self.settings.shape.topk > 1 { measured } else { self.acceptance.expected(width - 1).unwrap_or(measured) }
    }
}

impl Choice {
    /// The width that has its turn next.
    fn looks_next(&self, widths: &[usize]) -> usize {
        widths[(self.looked + 1) % widths.len()]
    }

    /// The chosen width, or `other`, which is looked at every `interval` steps.
    fn next(&mut self, other: usize, interval: u64, widths: &[usize]) -> usize {
        if let Some((width, left)) = self.look {
            self.look = (left > 1).then_some((width, left - 1));
            return width;
        }
        self.steps += 1;
        if self.steps >= interval {
            self.steps = 0;
            self.looked = (self.looked + 1) % widths.len();
            self.look = (other != self.width).then_some((other, LOOK));
        }
        self.width
    }
}
