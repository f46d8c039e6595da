//! Steps in which nothing waits for the device but the end: the device drafts, verifies and follows by what it has
//! chosen itself, and the host finds out afterwards how far each chain was right.
//!
//! Lossless as every step: the device chooses at each node what plain decoding would choose there, and the host takes the
//! way through these choices. What the head computed beyond the accepted rows is overwritten by the next step.
//!
//! Several ranks need not agree on the host: logits are whole on each of them and have the same bits, so each chooses the
//! same tokens, and each host thread takes the same way through its own device's choices.

use super::{ChoicePlace, Worker, WorkerError};
use crate::backend::{Backend, PassKey, StepInput};
use crate::collective::PassError;
use crate::executor::Capacity;
use crate::executor::ranks::input;
use crate::spec::{Drafter, EntryRows};
use crate::types::{Batch, LogitsRows, Phase, StepOutput, StepTiming};

/// Marks in the device's work: begin of the step, drafted, verified, followed.
const MARKS: [usize; 4] = [0, 1, 2, 3];
/// Begin and end of what the draft model did for earlier steps.
const CATCH_UP: [usize; 2] = [4, 5];

impl<B: Backend> Worker<B> {
    /// Has the device record the passes that it will replay.
    pub(super) fn record(&mut self, capacity: &Capacity) -> Result<(), PassError> {
        let most = self.decoder.logit_capacity().min(capacity.rows as usize);
        let sequences = most.min(capacity.slots as usize);
        self.input = StepInput::default();
        for rows in self.backend.recorded_rows(Phase::Decode, sequences) {
            self.backend.upload(&mut self.step, &self.input)?;
            self.pass(PassKey { name: PassKey::TARGET, phase: Phase::Decode, rows, logit_rows: rows })?;
            self.record_drafter(|drafter, backend, communicator, _| {
                drafter.record_chains(backend, communicator, rows)
            })?;
        }
        if self.drafter.is_none() {
            return Ok(());
        }
        for rows in self.backend.recorded_rows(Phase::Verify, most) {
            self.backend.upload(&mut self.step, &self.input)?;
            self.pass(PassKey { name: PassKey::TARGET, phase: Phase::Verify, rows, logit_rows: rows })?;
            self.record_drafter(|drafter, backend, communicator, features| {
                drafter.record_extend(backend, communicator, features, rows)
            })?;
        }
        Ok(())
    }

    fn record_drafter(
        &mut self,
        record: impl FnOnce(
            &mut Drafter<B>,
            &mut B,
            &mut crate::collective::Communicator<B>,
            &B::Buffer,
        ) -> Result<(), PassError>,
    ) -> Result<(), PassError> {
        let (Some(drafter), Some(features)) = (&mut self.drafter, self.decoder.taps()) else { return Ok(()) };
        record(drafter, &mut self.backend, &mut self.communicator, features)
    }

    /// Has the draft model run over the rows that wait, unless those of this step may, too. Whether there were any.
    pub(super) fn catch_up(&mut self, batch: &Batch) -> Result<bool, PassError> {
        let [begun, ended] = CATCH_UP;
        let Some(drafter) = self.drafter.as_mut().filter(|drafter| !drafter.may_wait(batch)) else { return Ok(false) };
        self.backend.mark(begun)?;
        let caught_up = drafter.catch_up(&mut self.backend, &mut self.communicator)?;
        self.backend.mark(ended)?;
        Ok(caught_up)
    }

    /// Seconds of it, once the device has done the step.
    pub(super) fn caught_up(&self, any: bool) -> f64 {
        let [begun, ended] = CATCH_UP;
        if any { self.backend.seconds(begun, ended) } else { 0.0 }
    }

    /// Whether drafts are chains that the device drafts on its own.
    pub(super) fn drafts_alone(&self, batch: &Batch) -> bool {
        self.drafter.as_ref().is_some_and(|drafter| drafter.drafts_alone(batch.entries.len()))
    }

    /// Whether, besides, every token of the step can be chosen where the logits are.
    pub(super) fn runs_ahead(&self, batch: &Batch) -> bool {
        let Some(chooser) = &self.chooser else { return false };
        self.drafts_alone(batch)
            && !batch.entries.is_empty()
            && batch.entries.iter().all(|entry| entry.phase != Phase::Prefill && entry.logits == LogitsRows::Last)
            && batch.rows() <= self.decoder.logit_capacity()
            && chooser.place(batch, B::MOST_CHANGES, 0) != ChoicePlace::Host
    }

    /// The step. The inner error is a token that could not be chosen: the step is lost.
    pub(super) fn run_ahead(
        &mut self,
        batch: &Batch,
        output: &mut StepOutput,
    ) -> Result<Result<(), String>, WorkerError> {
        let [begun, drafted, verified, followed] = MARKS;
        let (Some(drafter), backend) = (&mut self.drafter, &mut self.backend) else { return Ok(Ok(())) };
        let waits = drafter.may_wait(batch);
        backend.mark(begun)?;
        let mut trees = drafter.draft_chains(backend, &mut self.communicator, batch)?;
        backend.mark(drafted)?;
        input::fill(batch, &trees, &mut self.input, &mut self.wanted);
        self.resolve(batch)?;
        self.backend.upload(&mut self.step, &self.input)?;
        let (phase, rows, logit_rows) = (input::phase(batch), self.input.rows(), self.wanted.len());
        self.pass(PassKey { name: PassKey::TARGET, phase, rows, logit_rows })?;
        let place = self.chooser.as_ref().map_or(ChoicePlace::Host, |chooser| chooser.place(batch, B::MOST_CHANGES, 0));
        self.draw(place, batch, &trees, 0)?;
        self.backend.mark(verified)?;
        let entries = self.entry_rows();
        let (Some(drafter), Some(features)) = (&mut self.drafter, self.decoder.taps()) else { return Ok(Ok(())) };
        if waits {
            drafter.put_aside(&mut self.backend, batch, features)?;
        } else {
            drafter.extend_ahead(&mut self.backend, &mut self.communicator, batch, features, &entries)?;
        }
        self.backend.mark(followed)?;
        self.read_choices(logit_rows, &mut trees)?;
        let (Some(drafter), Some(chooser)) = (&mut self.drafter, &mut self.chooser) else { return Ok(Ok(())) };
        if let Err(message) = chooser.take(batch, &trees, &self.wanted, output) {
            return Ok(Err(message));
        }
        let outcomes = chooser.outcomes(output);
        if waits {
            drafter.append(batch, &outcomes);
        } else {
            drafter.accept(batch, &outcomes);
        }
        let seconds = |from, to| self.backend.seconds(from, to);
        let (draft, target) = (seconds(begun, drafted), seconds(drafted, verified));
        output.timing = StepTiming { draft, target, follow: seconds(verified, followed), caught_up: 0.0 };
        Ok(Ok(()))
    }

    /// Where each entry's rows and choices are. Every row of these steps has logits.
    fn entry_rows(&self) -> Vec<EntryRows> {
        let rows = |segment: &crate::backend::Segment| {
            let first = segment.first_row;
            EntryRows { first_row: first, rows: segment.rows, first_choice: first }
        };
        self.input.segments.iter().map(rows).collect()
    }
}
