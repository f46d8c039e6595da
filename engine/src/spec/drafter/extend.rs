//! Keeping the draft model in step with what was committed.

use super::{DraftStep, Drafter, pass};
use crate::backend::{Backend, Segment};
use crate::collective::PassError;
use crate::spec::agreement::Outcome;
use crate::types::{BatchEntry, Phase};

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
        self.input.clear();
        self.picks.clear();
        let slots = self.config.slots;
        let mut kept: Vec<u32> = (0..slots as u32).collect();
        for ((entry, outcome), first) in at.batch.entries.iter().zip(outcomes).zip(first_rows) {
            let rows = self.enter_committed(entry, outcome, *first);
            if rows > 0 {
                kept[entry.slot.0 as usize] = (slots + self.input.rows() - 1) as u32;
            }
        }
        let rows = self.input.rows();
        if rows == 0 {
            return Ok(());
        }
        self.upload(at.backend)?;
        self.model.extend(&mut pass(at, &mut self.cache, &self.step, rows), &self.pick, features)?;
        self.picks.clear();
        self.picks.logit_rows = kept;
        at.backend.upload(&mut self.pick, &self.picks)?;
        Ok(self.model.carry(at.backend, &self.pick, rows)?)
    }

    /// Adds an entry's committed rows; returns how many.
    fn enter_committed(&mut self, entry: &BatchEntry, outcome: &Outcome, first: usize) -> usize {
        let Some(sequence) = self.sequences[entry.slot.0 as usize].as_mut() else { return 0 };
        sequence.extend_from_slice(&outcome.tokens);
        let (first_row, first_page, start) = (self.input.rows(), self.input.pages.len(), entry.start as usize);
        let committed = if entry.phase == Phase::Verify { outcome.path.len() } else { entry.tokens.len() };
        for row in 0..committed {
            // The row predicts from the token after its own.
            let Some(token) = sequence.get(start + row + 1) else { break };
            self.input.tokens.push(*token);
            self.input.positions.push((start + row) as u32);
            let source = if entry.phase == Phase::Verify { outcome.path[row] } else { row };
            self.picks.logit_rows.push((first + source) as u32);
        }
        let rows = self.input.rows() - first_row;
        if rows > 0 {
            self.input.pages.extend(entry.pages.iter().map(|page| page.0));
            let pages = first_page..self.input.pages.len();
            self.input.segments.push(Segment { first_row, rows, start, pages, tree: None });
        }
        rows
    }
}
