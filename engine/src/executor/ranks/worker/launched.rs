//! Plain steps that the device does one after another by itself: the next one is launched before the tokens of this one are
//! read, with the places of those tokens in its input. Outputs of a sequence that has ended in the meantime are dropped by the
//! caller. A draft model follows later ([`crate::spec::Drafter::put_aside`]).

use std::sync::Arc;
use std::time::Instant;

use super::{ChoicePlace, Worker, WorkerError};
use crate::backend::{Backend, PassKey, chosen, chosen_index};
use crate::executor::ranks::input::{self, LogitRow};
use crate::types::{Batch, LogitsRows, StepOutput};

/// A step that the device has.
pub(super) struct Launched {
    batch: Arc<Batch>,
    wanted: Vec<LogitRow>,
    begun: Instant,
    /// Why its tokens cannot be taken, if so.
    refused: Option<String>,
}

impl<B: Backend> Worker<B> {
    /// Whether [`Worker::launch`] can take the batch: its sequences are known here, the device can choose all of its
    /// tokens, after those of the step that it has, if any, and a draft model need not follow.
    pub fn launches(&self, batch: &Batch) -> bool {
        let Some(chooser) = &self.chooser else { return false };
        let waits = self.drafter.as_ref().is_none_or(|drafter| drafter.may_wait(batch));
        let known = batch.entries.iter().all(|entry| entry.begin.is_none() && entry.logits != LogitsRows::All);
        let fits = self.launched.len() < 2 && batch.entries.len() <= self.decoder.logit_capacity();
        let place = || chooser.place(batch, B::MOST_CHANGES, self.launched.len() as u32);
        self.communicator.world_size() == 1
            && !batch.entries.is_empty()
            && known
            && fits
            && waits
            && place() != ChoicePlace::Host
    }

    /// Has the device do the step, after the one that it has, if any. [`Worker::take`] gives the output. Errors: nothing was
    /// launched.
    pub fn launch(&mut self, batch: &Arc<Batch>) -> Result<(), WorkerError> {
        let unknown = self.launched.len() as u32;
        if let Some(chooser) = self.chooser.as_mut().filter(|_| unknown == 0) {
            chooser.begin(batch).map_err(WorkerError::Step)?;
        }
        if let Some(drafter) = &mut self.drafter {
            drafter.begin(&mut self.backend, batch)?;
        }
        input::fill(batch, &[], &mut self.input, &mut self.wanted);
        self.resolve(batch)?;
        let begun = Instant::now();
        self.backend.upload(&mut self.step, &self.input)?;
        let (phase, rows, logit_rows) = (input::phase(batch), self.input.rows(), self.wanted.len());
        self.pass(PassKey { name: PassKey::TARGET, phase, rows, logit_rows })?;
        let chooser = self.chooser.as_ref();
        let place = chooser.map_or(ChoicePlace::Host, |chooser| chooser.place(batch, B::MOST_CHANGES, unknown));
        self.draw(place, batch, &[], unknown)?;
        if let (Some(drafter), Some(features)) = (&mut self.drafter, self.decoder.taps()) {
            drafter.put_aside(&mut self.backend, batch, features)?;
        }
        self.backend.keep_choices(logit_rows)?;
        let (batch, wanted) = (Arc::clone(batch), self.wanted.clone());
        self.launched.push_back(Launched { batch, wanted, begun, refused: None });
        Ok(())
    }

    /// Whether the device has done the first step that it has.
    pub fn has_done(&mut self) -> Result<bool, WorkerError> {
        Ok(self.backend.has_kept_choices()?)
    }

    /// The output of the first step that was launched and is not taken; waits for the device.
    pub fn take(&mut self) -> Result<Option<StepOutput>, WorkerError> {
        let output = self.take_first();
        self.note(output.as_ref().ok().and_then(Option::as_ref));
        output
    }

    fn take_first(&mut self) -> Result<Option<StepOutput>, WorkerError> {
        let (Some(step), Some(chooser)) = (self.launched.pop_front(), &mut self.chooser) else { return Ok(None) };
        self.backend.take_choices(chooser.ids(step.wanted.len()))?;
        let now = Instant::now();
        let entries = vec![Default::default(); step.batch.entries.len()];
        let mut output = StepOutput { entries, ..StepOutput::default() };
        output.timing.target = (now - step.begun).as_secs_f64();
        let taken = match step.refused {
            Some(message) => Err(message),
            None => chooser.take(&step.batch, &[], &step.wanted, &mut output),
        };
        if let (Some(drafter), Ok(())) = (&mut self.drafter, &taken) {
            drafter.append(&step.batch, &chooser.outcomes(&output));
        }
        if let Some(next) = self.launched.front_mut() {
            // The device came to it when it had done this one, and sequences that had ended by then were still in this one.
            next.begun = now;
            next.refused = chooser.begin(&next.batch).err();
        }
        taken.map(|()| Some(output)).map_err(WorkerError::Step)
    }

    /// Remembers what each entry chose, for a step that continues with it.
    pub(super) fn note(&mut self, output: Option<&StepOutput>) {
        self.last.clear();
        let entries = output.iter().flat_map(|output| &output.entries);
        self.last.extend(entries.map(|entry| entry.tokens.last().map(|token| token.id)));
    }

    /// In the step's input puts tokens, or the places of their choices, where the batch names entries of the step before.
    pub(super) fn resolve(&mut self, batch: &Batch) -> Result<(), WorkerError> {
        let (before, last) = (self.launched.back(), &self.last);
        for (entry, segment) in batch.entries.iter().zip(&self.input.segments) {
            let [token] = entry.tokens[..] else { continue };
            let Some(entry) = chosen_index(token) else { continue };
            let found = match before {
                Some(step) => {
                    let place = step.wanted.binary_search_by_key(&entry, |wanted| wanted.entry);
                    place.ok().map(chosen)
                }
                None => last.get(entry).copied().flatten(),
            };
            let lost = || WorkerError::Step(format!("entry {entry} of the step before, which was lost, has no token"));
            self.input.tokens[segment.first_row] = found.ok_or_else(lost)?;
        }
        Ok(())
    }
}
