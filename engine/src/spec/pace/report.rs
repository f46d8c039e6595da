//! What was measured, for people and programs.

use serde::Serialize;

use super::{Cell, Pace, PaceSettings};
use crate::spec::shape::DraftShape;

/// What an engine knows of its speculation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaceReport {
    pub shape: DraftShape,
    pub adaptive: bool,
    pub verifies: u64,
    pub drafted_tokens: u64,
    /// Verifies by number of accepted tokens, none first.
    pub accepted_histogram: Vec<u64>,
    /// Bonus included.
    pub tokens_per_verify: Option<f64>,
    pub warning: Option<String>,
    pub widths: Vec<WidthReport>,
}

/// One width at one batch size. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WidthReport {
    /// Sequences in a step: up to so many, and more than half.
    pub sequences: usize,
    /// Tokens to verify, root included; 1 for plain decodes.
    pub verify_tokens: usize,
    pub in_use: bool,
    pub cycles: u64,
    pub cycle_seconds: f64,
    pub draft_seconds: f64,
    /// The target's pass: verify, or decode.
    pub target_seconds: f64,
    /// Compacting the cache and running the head over what was committed.
    pub follow_seconds: f64,
    /// Tokens of one sequence in one cycle.
    pub tokens_per_cycle: f64,
    /// Tokens per cycle at which it costs as much as plain decoding; none where that was not measured.
    pub break_even: Option<f64>,
    /// Speed over plain decoding: as the acceptance of each position predicts, and as measured.
    pub predicted_gain: Option<f64>,
    pub measured_gain: Option<f64>,
}

impl Pace {
    pub fn report(&self) -> PaceReport {
        let PaceSettings { shape, adaptive } = self.settings;
        PaceReport {
            shape,
            adaptive,
            verifies: self.acceptance.verifies(),
            drafted_tokens: self.acceptance.drafted(),
            accepted_histogram: self.acceptance.histogram().to_vec(),
            tokens_per_verify: self.acceptance.tokens_per_verify(),
            warning: self.acceptance.suspicion(),
            widths: self.cells.iter().map(|((sequences, width), cell)| self.line(*sequences, *width, cell)).collect(),
        }
    }

    fn line(&self, sequences: usize, width: usize, cell: &Cell) -> WidthReport {
        let plain = self.cells.get(&(sequences, 1)).map(|plain| plain.cycle.value()).filter(|plain| *plain > 0.0);
        let break_even = plain.map(|plain| cell.cycle.value() / plain);
        let gain = |tokens: f64| break_even.filter(|ratio| *ratio > 0.0).map(|ratio| tokens / ratio);
        let chosen = self.choices.get(&sequences).map(|choice| choice.width);
        let in_use = chosen.unwrap_or(self.settings.shape.verify_tokens) == width;
        WidthReport {
            sequences,
            verify_tokens: width,
            in_use,
            cycles: cell.cycle.count(),
            cycle_seconds: cell.cycle.value(),
            draft_seconds: cell.draft.value(),
            target_seconds: cell.target.value(),
            follow_seconds: cell.follow.value(),
            tokens_per_cycle: cell.tokens.value(),
            break_even,
            predicted_gain: gain(self.expected_tokens(sequences, width)),
            measured_gain: gain(cell.tokens.value()),
        }
    }
}
