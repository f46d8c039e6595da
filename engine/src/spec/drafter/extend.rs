//! Keeping the draft model in step with what is committed.

use super::{DraftStep, Drafter};
use crate::backend::{Backend, BackendError, PassKey, Segment, chosen};
use crate::collective::{Communicator, PassError};
use crate::model::Pass;
use crate::spec::agreement::Outcome;
use crate::types::{Batch, BatchEntry, Phase};

/// Where an entry's rows are in the target's step, and the choices of its logit rows on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRows {
    pub first_row: usize,
    pub rows: usize,
    pub first_choice: usize,
}

/// The rows of a pass over committed rows.
#[derive(Debug, Default)]
pub(super) struct Entered {
    rows: usize,
    /// First row and number of rows of each entry.
    entries: Vec<(usize, usize)>,
    /// The row of `[slots, rows]` that each slot keeps; empty while that is not known, and once it is done.
    kept: Vec<u32>,
}

impl<B: Backend> Drafter<B> {
    /// Runs the draft model over the rows that the step committed. `features` are the target's taps, `first_rows` the
    /// first row of each entry in the target's step.
    pub fn extend(
        &mut self,
        at: &mut DraftStep<'_, B>,
        features: &B::Buffer,
        first_rows: &[usize],
        outcomes: &[Outcome],
    ) -> Result<(), PassError> {
        self.append(at.batch, outcomes);
        self.clear();
        for ((entry, outcome), first) in at.batch.entries.iter().zip(outcomes).zip(first_rows) {
            let tokens = self.tokens_after(entry);
            let sources: Vec<usize> = match entry.phase {
                Phase::Verify => outcome.path.clone(),
                _ => (0..entry.tokens.len()).collect(),
            };
            self.enter(entry, sources.into_iter().map(|row| first + row).zip(tokens));
        }
        self.extend_entered(at.backend, at.communicator, features)?;
        self.keep(at.batch, outcomes);
        Ok(())
    }

    /// The same before the device has chosen: over all rows that may be committed, with the tokens that it will choose.
    /// Rows that are not accepted are written behind the committed ones, where the next step writes again.
    /// [`Drafter::accept`] is due when the choices are known.
    pub fn extend_ahead(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        batch: &Batch,
        features: &B::Buffer,
        rows: &[EntryRows],
    ) -> Result<(), PassError> {
        self.clear();
        for (entry, rows) in batch.entries.iter().zip(rows) {
            let tokens = (0..rows.rows).map(|row| chosen(rows.first_choice + row));
            self.enter(entry, (rows.first_row..).zip(tokens));
        }
        self.extend_entered(backend, communicator, features)
    }

    /// What became of the rows of [`Drafter::extend_ahead`].
    pub fn accept(&mut self, batch: &Batch, outcomes: &[Outcome]) {
        self.append(batch, outcomes);
        self.keep(batch, outcomes);
    }

    /// Has the device record the pass over so many rows.
    pub fn record_extend(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        features: &B::Buffer,
        rows: usize,
    ) -> Result<(), PassError> {
        self.clear();
        self.upload(backend)?;
        self.extend_pass(backend, communicator, features, rows)
    }

    /// Keeps outputs of the last pass for the next ones: a pass of its own, because which they are is known late.
    pub(super) fn carry(&mut self, backend: &mut B) -> Result<(), BackendError> {
        if self.entered.kept.is_empty() {
            return Ok(());
        }
        self.picks.clear();
        self.picks.logit_rows.append(&mut self.entered.kept);
        backend.upload(&mut self.pick, &self.picks)?;
        self.model.carry(backend, &self.pick, self.entered.rows)
    }

    fn clear(&mut self) {
        self.input.clear();
        self.picks.clear();
        self.entered.entries.clear();
    }

    fn append(&mut self, batch: &Batch, outcomes: &[Outcome]) {
        for (entry, outcome) in batch.entries.iter().zip(outcomes) {
            if let Some(sequence) = self.sequences[entry.slot.0 as usize].as_mut() {
                sequence.extend_from_slice(&outcome.tokens);
            }
        }
    }

    /// Tokens of a sequence after those that its rows read: a row predicts from the token after its own.
    fn tokens_after(&self, entry: &BatchEntry) -> Vec<u32> {
        let sequence = self.sequences[entry.slot.0 as usize].as_deref().unwrap_or_default();
        let after = sequence.get(entry.start as usize + 1..).unwrap_or_default();
        after.iter().take(entry.tokens.len().max(entry.verify_tokens as usize)).copied().collect()
    }

    /// Adds rows of an entry, each with its row in the target's step and the token after it.
    fn enter(&mut self, entry: &BatchEntry, rows: impl Iterator<Item = (usize, u32)>) {
        let (first_row, first_page, start) = (self.input.rows(), self.input.pages.len(), entry.start as usize);
        if self.sequences[entry.slot.0 as usize].is_some() {
            for (source, token) in rows {
                self.input.positions.push((start + self.input.rows() - first_row) as u32);
                self.input.tokens.push(token);
                self.picks.logit_rows.push(source as u32);
            }
        }
        let rows = self.input.rows() - first_row;
        self.entered.entries.push((first_row, rows));
        if rows > 0 {
            self.input.pages.extend(entry.pages.iter().map(|page| page.0));
            let pages = first_page..self.input.pages.len();
            self.input.segments.push(Segment { first_row, rows, start, pages, tree: None });
        }
    }

    fn extend_entered(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        features: &B::Buffer,
    ) -> Result<(), PassError> {
        self.entered.rows = self.input.rows();
        if self.entered.rows == 0 {
            return Ok(());
        }
        self.upload(backend)?;
        // Rows of prompts are many, and each step has another number of them.
        let several = |segment: &Segment| segment.rows > self.config.shape.verify_tokens;
        if self.input.segments.iter().any(several) {
            return self.extend_rows(backend, communicator, features, self.entered.rows);
        }
        self.extend_pass(backend, communicator, features, self.entered.rows)
    }

    fn extend_pass(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        features: &B::Buffer,
        rows: usize,
    ) -> Result<(), PassError> {
        let key = backend.padded(PassKey { name: "extend", phase: Phase::Draft, rows, logit_rows: 0 });
        communicator
            .pass(backend, key, |backend, communicator| self.extend_rows(backend, communicator, features, key.rows))
    }

    fn extend_rows(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        features: &B::Buffer,
        rows: usize,
    ) -> Result<(), PassError> {
        let (cache, step) = (&mut self.cache, &self.step);
        let mut pass = Pass { backend, communicator, cache, step, phase: Phase::Draft, rows };
        self.model.extend(&mut pass, &self.pick, features)
    }

    fn keep(&mut self, batch: &Batch, outcomes: &[Outcome]) {
        let slots = self.config.slots;
        self.entered.kept.clear();
        self.entered.kept.extend(0..slots as u32);
        for ((entry, outcome), (first, rows)) in batch.entries.iter().zip(outcomes).zip(&self.entered.entries) {
            let committed = if entry.phase == Phase::Verify { outcome.path.len().min(*rows) } else { *rows };
            if committed > 0 {
                self.entered.kept[entry.slot.0 as usize] = (slots + first + committed - 1) as u32;
            }
        }
        if self.entered.rows == 0 {
            self.entered.kept.clear();
        }
    }
}
