//! Keeping the draft model in step with what is committed.

use super::{DraftStep, Drafter};
use crate::backend::{Backend, BackendError, PassKey, Segment, chosen};
use crate::collective::{Communicator, PassError};
use crate::model::Pass;
use crate::spec::agreement::Outcome;
use crate::types::{Batch, BatchEntry, PageId, Phase};

/// Where an entry's rows are in the target's step, and the choices of its logit rows on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRows {
    pub first_row: usize,
    pub rows: usize,
    pub first_choice: usize,
}

/// Whose rows they are, the position of the first one, and the pages of the sequence.
pub(super) struct Rows<'a> {
    pub slot: u32,
    pub start: usize,
    pub pages: &'a [PageId],
}

impl<'a> From<&'a BatchEntry> for Rows<'a> {
    fn from(entry: &'a BatchEntry) -> Self {
        Self { slot: entry.slot.0, start: entry.start as usize, pages: &entry.pages }
    }
}

/// The rows of a pass over committed rows.
#[derive(Debug, Default)]
pub(super) struct Entered {
    pub rows: usize,
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
            let entered = self.enter(&entry.into(), sources.into_iter().map(|row| first + row).zip(tokens));
            self.entered.entries.push(entered);
        }
        self.extend_entered(at.backend, at.communicator, features)?;
        self.keep_committed(at.batch, outcomes);
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
            let entered = self.enter(&entry.into(), (rows.first_row..).zip(tokens));
            self.entered.entries.push(entered);
        }
        self.extend_entered(backend, communicator, features)
    }

    /// What became of the rows of [`Drafter::extend_ahead`].
    pub fn accept(&mut self, batch: &Batch, outcomes: &[Outcome]) {
        self.append(batch, outcomes);
        self.keep_committed(batch, outcomes);
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

    pub(super) fn clear(&mut self) {
        self.input.clear();
        self.picks.clear();
        self.entered.entries.clear();
    }

    /// Tokens of a sequence after those that its rows read: a row predicts from the token after its own.
    fn tokens_after(&self, entry: &BatchEntry) -> Vec<u32> {
        let count = entry.tokens.len().max(entry.verify_tokens as usize);
        self.after(entry.slot.0, entry.start as usize).take(count).collect()
    }

    /// Tokens of a slot's sequence behind a position.
    pub(super) fn after(&self, slot: u32, position: usize) -> impl Iterator<Item = u32> + '_ {
        let sequence = self.sequences[slot as usize].as_deref().unwrap_or_default();
        sequence.get(position + 1..).unwrap_or_default().iter().copied()
    }

    /// Adds rows of a sequence, each with the row of its features and the token after it. Gives the first row of the pass
    /// that is one of them, and their number.
    pub(super) fn enter(&mut self, of: &Rows<'_>, rows: impl Iterator<Item = (usize, u32)>) -> (usize, usize) {
        let (first_row, first_page, start) = (self.input.rows(), self.input.pages.len(), of.start);
        if self.sequences[of.slot as usize].is_some() {
            for (source, token) in rows {
                self.input.positions.push((start + self.input.rows() - first_row) as u32);
                self.input.tokens.push(token);
                self.picks.logit_rows.push(source as u32);
            }
        }
        let rows = self.input.rows() - first_row;
        if rows > 0 {
            self.input.pages.extend(of.pages.iter().map(|page| page.0));
            let pages = first_page..self.input.pages.len();
            self.input.segments.push(Segment { first_row, rows, start, pages, tree: None });
        }
        (first_row, rows)
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

    fn keep_committed(&mut self, batch: &Batch, outcomes: &[Outcome]) {
        let entered = std::mem::take(&mut self.entered.entries);
        let kept = batch.entries.iter().zip(outcomes).zip(&entered).map(|((entry, outcome), rows)| {
            let committed = if entry.phase == Phase::Verify { outcome.path.len().min(rows.1) } else { rows.1 };
            (entry.slot.0, *rows, committed)
        });
        self.keep(kept);
        self.entered.entries = entered;
    }

    /// Of each slot's rows of the last pass, first and number, keeps the output of the last one that is committed.
    pub(super) fn keep(&mut self, rows: impl Iterator<Item = (u32, (usize, usize), usize)>) {
        let slots = self.config.slots;
        self.entered.kept.clear();
        if self.entered.rows == 0 {
            return;
        }
        self.entered.kept.extend(0..slots as u32);
        for (slot, (first, _), committed) in rows.filter(|(_, _, committed)| *committed > 0) {
            self.entered.kept[slot as usize] = (slots + first + committed - 1) as u32;
        }
    }
}
