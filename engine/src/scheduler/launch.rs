//! From a plan to the batch that the executor gets.

use super::plan::{Plan, PlannedEntry};
use super::sequence::{Flight, Sequence, SequenceId};
use super::state::Scheduler;
use crate::types::{Batch, BatchEntry, LogitsRows, Phase, SlotId};

/// The step between launch and commit.
#[derive(Debug)]
pub(super) struct InFlight {
    pub entries: Vec<InFlightEntry>,
    pub retired: Vec<SlotId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightEntry {
    pub sequence: SequenceId,
    pub phase: Phase,
    pub start: usize,
    /// Input rows; a verify entry's width.
    pub rows: usize,
    pub samples: bool,
    /// Prompt log-probabilities that the entry must bring.
    pub prompt_logprobs: usize,
}

impl Scheduler {
    /// Turns a plan into a batch, without the entries whose sequence ended after planning. None if nothing is left.
    /// The step before must have been committed.
    pub fn launch(&mut self, plan: Plan) -> Option<Batch> {
        debug_assert!(self.in_flight.is_none(), "one step at a time");
        let step = self.stats.steps;
        let (mut entries, mut flights) = (Vec::new(), Vec::new());
        for planned in plan.entries {
            let Some(sequence) = self.sequences.get_mut(&planned.sequence) else { continue };
            if let Some(place) = sequence.place.as_mut().filter(|_| planned.phase != Phase::Prefill) {
                // Planned for the longest outcome of the step before; now the true start is known.
                self.cache.shrink(&mut place.table, sequence.computed + planned.rows);
            }
            let Some((entry, flight)) = enter(sequence, planned) else { continue };
            self.turns += 1;
            sequence.served = self.turns;
            entries.push(entry);
            flights.push(flight);
        }
        if entries.is_empty() {
            return None;
        }
        self.stats.steps += 1;
        let retired = std::mem::take(&mut self.retired);
        self.in_flight = Some(InFlight { entries: flights, retired: retired.clone() });
        Some(Batch { step, entries, retired })
    }
}

fn enter(sequence: &mut Sequence, planned: PlannedEntry) -> Option<(BatchEntry, InFlightEntry)> {
    let start = sequence.computed;
    let length = sequence.tokens.len();
    let rows = planned.rows;
    let inputs = if planned.phase == Phase::Verify { 1 } else { rows };
    let samples = start + inputs == length;
    let prompt = sequence.tokens.prompt().len();
    let wants_all = sequence.wants_prompt_logprobs() && start + 1 < prompt;
    let begin = sequence.place.as_ref().is_some_and(|place| !place.begun).then(|| sequence.sampling());
    let tokens = sequence.tokens.range(start..start + inputs);
    let place = sequence.place.as_mut()?;
    place.begun = true;
    let most = match (samples, planned.phase) {
        (false, _) => 0,
        (true, Phase::Verify) => rows,
        (true, _) => 1,
    };
    sequence.flight = Some(Flight { rows: inputs, most, kept: true });
    let entry = BatchEntry {
        slot: place.slot,
        phase: planned.phase,
        tokens,
        start: start as u32,
        pages: place.table.pages().to_vec(),
        verify_tokens: if planned.phase == Phase::Verify { rows as u32 } else { 0 },
        logits: match (wants_all, samples) {
            (true, _) => LogitsRows::All,
            (false, true) => LogitsRows::Last,
            (false, false) => LogitsRows::None,
        },
        sample: samples,
        begin,
    };
    let prompt_logprobs = if wants_all { (start + inputs).min(prompt - 1) - start } else { 0 };
    Some((entry, InFlightEntry { sequence: sequence.id, phase: planned.phase, start, rows, samples, prompt_logprobs }))
}
