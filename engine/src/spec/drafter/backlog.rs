//! Rows that the draft model has still to run over.
//!
//! A pass of the draft model costs its weights, over one row as over a hundred. So while nothing is drafted, the target's
//! features of each row are put aside, and the draft model runs over the rows of many steps at once: before any step that is
//! not plain, before one that lacks a sequence whose rows wait, since others may write its pages from then on, and when there
//! is no more room.

use std::collections::BTreeMap;

use super::extend::Rows;
use super::{Drafter, DrafterConfig};
use crate::backend::{Backend, BackendError, CopyColumns, PassKey};
use crate::collective::{Communicator, PassError};
use crate::model::{ModelError, Pass};
use crate::spec::agreement::Outcome;
use crate::types::{Batch, BatchEntry, PageId, Phase};

/// Most steps whose rows wait. At one sequence a pass every so many steps is less than one percent of their time even where it
/// takes a tenth of a step's.
pub const STEPS: usize = 16;

/// Features that wait, and whose they are.
pub(super) struct Backlog<B: Backend> {
    /// `[room, width]`, in the order in which they were put aside.
    features: B::Buffer,
    room: usize,
    width: usize,
    steps: usize,
    rows: usize,
    waiting: BTreeMap<u32, Waiting>,
}

/// Consecutive rows of one sequence.
#[derive(Default)]
struct Waiting {
    /// Position of the first one.
    start: usize,
    /// Where each one's features are.
    sources: Vec<usize>,
    /// The sequence's pages.
    pages: Vec<PageId>,
}

impl<B: Backend> Backlog<B> {
    /// For features of `width` elements, of no more rows than a pass can have.
    pub fn allocate(backend: &mut B, config: &DrafterConfig, width: usize) -> Result<Self, ModelError> {
        let room = config.rows.min(STEPS * config.slots);
        let features = backend.allocate_buffer(room * width)?;
        Ok(Self { features, room, width, steps: 0, rows: 0, waiting: BTreeMap::new() })
    }

    /// Whether an entry's row is the next one of those that wait, or the first one.
    fn continues(&self, entry: &BatchEntry) -> bool {
        let next = |waiting: &Waiting| waiting.start + waiting.sources.len();
        self.waiting.get(&entry.slot.0).is_none_or(|waiting| next(waiting) == entry.start as usize)
    }
}

impl<B: Backend> Drafter<B> {
    /// Whether the rows of a step may wait: it drafts nothing and begins nothing, all sequences whose rows wait already are
    /// in it, and there is room.
    pub fn may_wait(&self, batch: &Batch) -> bool {
        let Backlog { room, steps, rows, ref waiting, .. } = self.backlog;
        let entries = &batch.entries;
        let plain = |entry: &BatchEntry| entry.phase == Phase::Decode && entry.begin.is_none() && entry.sample;
        let waits = |entry: &&BatchEntry| waiting.contains_key(&entry.slot.0);
        !entries.is_empty()
            && steps < STEPS
            && rows + entries.len() <= room
            && entries.iter().all(|entry| plain(entry) && self.backlog.continues(entry))
            && entries.iter().filter(waits).count() == waiting.len()
    }

    /// Puts aside the features of a step that may wait: `features` has a row for each of its entries. [`Drafter::append`]
    /// is due, too, once its tokens are known.
    pub fn put_aside(&mut self, backend: &mut B, batch: &Batch, features: &B::Buffer) -> Result<(), BackendError> {
        let backlog = &mut self.backlog;
        let (count, width, first) = (batch.entries.len(), backlog.width, backlog.rows);
        // The rows as one long row.
        backend.copy_columns(CopyColumns {
            source: features,
            width: count * width,
            target: &mut backlog.features,
            target_width: backlog.room * width,
            offset: first * width,
            rows: 1,
        })?;
        backlog.steps += 1;
        backlog.rows += count;
        for (row, entry) in batch.entries.iter().enumerate() {
            if self.sequences[entry.slot.0 as usize].is_none() {
                continue;
            }
            let start = entry.start as usize;
            let waiting =
                backlog.waiting.entry(entry.slot.0).or_insert_with(|| Waiting { start, ..Waiting::default() });
            waiting.sources.push(first + row);
            waiting.pages.clone_from(&entry.pages);
        }
        Ok(())
    }

    /// Runs the draft model over all rows that wait. Whether there were any.
    pub fn catch_up(&mut self, backend: &mut B, communicator: &mut Communicator<B>) -> Result<bool, PassError> {
        (self.backlog.steps, self.backlog.rows) = (0, 0);
        let waiting = std::mem::take(&mut self.backlog.waiting);
        if waiting.is_empty() {
            return Ok(false);
        }
        self.carry(backend)?;
        self.clear();
        let mut kept = Vec::new();
        for (slot, Waiting { start, sources, pages }) in waiting {
            // A token is missing where its step was lost, and its sequence with it.
            let tokens: Vec<u32> = self.after(slot, start).take(sources.len()).collect();
            let rows = sources.into_iter().zip(tokens);
            kept.push((slot, self.enter(&Rows { slot, start, pages: &pages }, rows)));
        }
        self.entered.rows = self.input.rows();
        if self.entered.rows > 0 {
            self.upload(backend)?;
            // Few rows in sizes that are used already: a device may have to prepare for one that is new to it. The name is
            // another one, because a recorded pass reads the target's features where they are.
            let (phase, logit_rows) = (Phase::Draft, 0);
            let rows = backend.padded(PassKey { name: "extend", phase, rows: self.entered.rows, logit_rows }).rows;
            let Self { model, cache, step, pick, backlog, .. } = self;
            communicator.pass(
                backend,
                PassKey { name: "catch up", phase, rows, logit_rows },
                |backend, communicator| {
                    let mut pass = Pass { backend, communicator, cache: &mut *cache, step: &*step, phase, rows };
                    model.extend(&mut pass, pick, &backlog.features)
                },
            )?;
        }
        self.keep(kept.into_iter().map(|(slot, rows)| (slot, rows, rows.1)));
        Ok(true)
    }

    /// Adds the tokens that a step gave to its sequences.
    pub fn append(&mut self, batch: &Batch, outcomes: &[Outcome]) {
        for (entry, outcome) in batch.entries.iter().zip(outcomes) {
            if let Some(sequence) = self.sequences[entry.slot.0 as usize].as_mut() {
                sequence.extend_from_slice(&outcome.tokens);
            }
        }
    }
}
