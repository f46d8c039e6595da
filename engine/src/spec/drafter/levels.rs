//! Drafting: level by level, for all sequences at once.

use super::{DraftStep, Drafter};
use crate::backend::{Backend, Segment, TreeMask};
use crate::collective::PassError;
use crate::model::Pass;
use crate::spec::agreement::{Decision, out_of_step};
use crate::spec::candidates::append_best;
use crate::spec::model::Hidden;
use crate::spec::tree::{Candidate, DraftTree, TreeBuilder};
use crate::types::{BatchEntry, Phase};

/// A sequence whose tree grows.
struct Growing<'a> {
    entry: &'a BatchEntry,
    index: usize,
    builder: TreeBuilder,
    /// First row of its frontier in the last pass, and how many draft rows it had before that.
    first_row: usize,
    rows_before: usize,
}

impl<B: Backend> Drafter<B> {
    /// Drafts for every verify entry: a tree for each of them, nothing for the other entries.
    pub fn draft(&mut self, at: &mut DraftStep<'_, B>) -> Result<Vec<Option<DraftTree>>, PassError> {
        let mut growing = Vec::new();
        let mut trees: Vec<Option<DraftTree>> = vec![None; at.batch.entries.len()];
        for (index, entry) in at.batch.entries.iter().enumerate().filter(|(_, entry)| entry.phase == Phase::Verify) {
            trees[index] = Some(DraftTree::root(entry.tokens[0]));
            if self.sequences[entry.slot.0 as usize].is_some() {
                let builder = TreeBuilder::new(self.config.shape.within(entry.verify_tokens as usize));
                growing.push(Growing { entry, index, builder, first_row: 0, rows_before: 0 });
            }
        }
        if !growing.is_empty() {
            self.first_level(at, &mut growing)?;
        }
        for level in 1.. {
            let mut going: Vec<&mut Growing> = growing.iter_mut().filter(|one| one.builder.goes_on(level)).collect();
            if going.is_empty() {
                break;
            }
            self.next_level(at, &mut going, level)?;
        }
        for one in growing {
            trees[one.index] = Some(one.builder.finish(one.entry.tokens[0]));
        }
        Ok(trees)
    }

    /// Candidates of the roots: from the outputs of the last committed rows.
    fn first_level(&mut self, at: &mut DraftStep<'_, B>, growing: &mut [Growing<'_>]) -> Result<(), PassError> {
        let rows = growing.len();
        self.input.clear();
        self.picks.clear();
        self.picks.logit_rows.extend(growing.iter().map(|one| one.entry.slot.0));
        self.input.logit_rows.extend(0..rows as u32);
        self.upload(at.backend)?;
        self.model.recall(at.backend, &self.pick, rows)?;
        let candidates = self.candidates(at, rows)?;
        for (one, candidates) in growing.iter_mut().zip(candidates.chunks(candidates.len() / rows)) {
            one.builder.grow(candidates);
        }
        Ok(())
    }

    /// A pass over the frontiers, and the candidates that come of it.
    fn next_level(
        &mut self,
        at: &mut DraftStep<'_, B>,
        going: &mut [&mut Growing<'_>],
        level: usize,
    ) -> Result<(), PassError> {
        self.input.clear();
        self.picks.clear();
        for one in going.iter_mut() {
            self.enter_frontier(one, level);
        }
        let rows = self.input.rows();
        self.input.logit_rows.extend(0..rows as u32);
        self.upload(at.backend)?;
        let from = if level == 1 { Hidden::Carried } else { Hidden::Previous };
        self.model.draft(&mut pass(at, &mut self.cache, &self.step, rows), &self.pick, from)?;
        let candidates = self.candidates(at, rows)?;
        let each = candidates.len() / rows;
        let mut first = 0;
        for one in going {
            let count = one.builder.frontier().count();
            one.builder.grow(&candidates[first * each..(first + count) * each]);
            first += count;
        }
        Ok(())
    }

    fn enter_frontier(&mut self, one: &mut Growing<'_>, level: usize) {
        let (first_row, first_word) = (self.input.rows(), self.input.mask.len());
        let (slot, committed) = (one.entry.slot.0, one.entry.start as usize);
        for (token, parent) in one.builder.frontier() {
            self.input.tokens.push(token);
            self.input.positions.push((committed + level - 1) as u32);
            let previous = parent.map_or(0, |row| one.first_row + row - one.rows_before);
            self.picks.logit_rows.push(if level == 1 { slot } else { previous as u32 });
        }
        let rows = self.input.rows() - first_row;
        let start = committed + one.builder.rows() - rows;
        let tree = (self.config.shape.topk > 1).then(|| {
            one.builder.mask(&mut self.input.mask);
            TreeMask { committed, words: first_word..self.input.mask.len() }
        });
        let pages = self.enter_pages(one.entry);
        self.input.segments.push(Segment { first_row, rows, start, pages, tree });
        (one.first_row, one.rows_before) = (first_row, one.builder.rows() - rows);
    }

    /// Rank 0 reads the logits of the pass just done and chooses; all ranks get the same.
    fn candidates(&mut self, at: &mut DraftStep<'_, B>, rows: usize) -> Result<Vec<Candidate>, PassError> {
        let (capacity, width, count) = (self.model.logit_capacity(), self.draft_vocabulary, self.config.shape.topk);
        let leads = at.agreement.leads();
        let mut candidates = Vec::with_capacity(if leads { rows * count } else { 0 });
        for first in (0..rows).step_by(capacity) {
            let range = first..(first + capacity).min(rows);
            let mut pass = pass(at, &mut self.cache, &self.step, rows);
            let logits = self.model.logits(&mut pass, range.clone())?;
            if leads {
                let host = &mut self.logits[..range.len() * width];
                pass.backend.read(logits, 0, host)?;
                host.chunks_exact(width).for_each(|row| append_best(row, count, &self.vocabulary, &mut candidates));
            }
        }
        let decision = at.agreement.share(leads.then_some(Decision::Candidates(candidates)))?;
        match &*decision {
            Decision::Candidates(candidates) if candidates.len() == rows * count => Ok(candidates.clone()),
            _ => Err(out_of_step("candidates").into()),
        }
    }
}

/// A pass of the draft model over its own cache.
fn pass<'a, B: Backend>(
    at: &'a mut DraftStep<'_, B>,
    cache: &'a mut B::Cache,
    step: &'a B::Step,
    rows: usize,
) -> Pass<'a, B> {
    Pass { backend: at.backend, communicator: at.communicator, cache, step, phase: Phase::Draft, rows }
}
