//! From a plan to the batch that the executor gets.

use super::plan::{Plan, PlannedEntry};
use super::sequence::{Flight, Sequence, SequenceId};
use super::state::Scheduler;
use crate::types::{Batch, BatchEntry, LogitsRows, Phase, SlotId, chosen};

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
        debug_assert!(self.in_flight.is_empty(), "the step before is committed");
        for planned in plan.entries.iter().filter(|planned| planned.phase != Phase::Prefill) {
            let Some(sequence) = self.sequences.get_mut(&planned.sequence) else { continue };
            if let Some(place) = sequence.place.as_mut() {
                // Planned for the longest outcome of the step before; now the true start is known.
                self.cache.shrink(&mut place.table, sequence.computed + planned.rows);
            }
        }
        self.enter_all(plan)
    }

    /// Whether a plan can be launched before the step in flight is committed ([`Scheduler::launch_following`]): each entry
    /// is one more token of a sequence, after one that is known or that the step in flight is sure to bring.
    pub fn follows(&self, plan: &Plan) -> bool {
        let known = |id| {
            let Some(sequence) = self.sequences.get(id) else { return false };
            let begun = sequence.place.as_ref().is_some_and(|place| place.begun);
            begun && (sequence.flight.is_none() || sequence.awaits().is_some())
        };
        self.in_flight.len() == 1
            && !plan.entries.is_empty()
            && plan.entries.iter().all(|entry| entry.phase == Phase::Decode && known(&entry.sequence))
    }

    /// Turns a plan that [`Scheduler::follows`] into a batch that continues with what the step in flight chooses
    /// ([`chosen`]). A sequence that ends with that step has a token too many in this one, which is dropped; what it
    /// writes into a page that others have by then is overwritten before they read it.
    pub fn launch_following(&mut self, plan: Plan) -> Option<Batch> {
        debug_assert!(self.follows(&plan), "the plan follows on the step in flight");
        self.enter_all(plan)
    }

    fn enter_all(&mut self, plan: Plan) -> Option<Batch> {
        let step = self.stats.steps;
        let (mut entries, mut flights) = (Vec::new(), Vec::new());
        for planned in plan.entries {
            let Some(sequence) = self.sequences.get_mut(&planned.sequence) else { continue };
            let Some((entry, flight)) = enter(sequence, planned, entries.len()) else { continue };
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
        self.in_flight.push_back(InFlight { entries: flights, retired: retired.clone() });
        Some(Batch { step, entries, retired })
    }
}

fn enter(sequence: &mut Sequence, planned: PlannedEntry, index: usize) -> Option<(BatchEntry, InFlightEntry)> {
    let awaited = sequence.awaits();
    let start = sequence.latest_start();
    let length = sequence.tokens.len() + usize::from(awaited.is_some());
    let rows = planned.rows;
    let inputs = if planned.phase == Phase::Verify { 1 } else { rows };
    let samples = start + inputs == length;
    let prompt = sequence.tokens.prompt().len();
    let wants_all = sequence.wants_prompt_logprobs() && start + 1 < prompt;
    let begin = sequence.place.as_ref().is_some_and(|place| !place.begun).then(|| sequence.sampling());
    let tokens = match awaited {
        Some(entry) => vec![chosen(entry)],
        None => sequence.tokens.range(start..start + inputs),
    };
    let place = sequence.place.as_mut()?;
    place.begun = true;
    let most = match (samples, planned.phase) {
        (false, _) => 0,
        (true, Phase::Verify) => rows,
        (true, _) => 1,
    };
    let flight = Some(Flight { rows: inputs, most, kept: true, entry: index });
    *(if awaited.is_some() { &mut sequence.second } else { &mut sequence.flight }) = flight;
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
