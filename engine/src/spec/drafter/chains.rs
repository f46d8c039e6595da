//! Chains that the device drafts on its own: each round reads the tokens that the one before it chose, so the host can
//! put all rounds, the pass that verifies them and what follows it into the stream at once, and wait once.

use super::Drafter;
use crate::backend::{AttentionHeads, Backend, BackendError, Choose, PassKey, Segment, StepLimits, chosen};
use crate::collective::{Communicator, PassError};
use crate::model::Pass;
use crate::spec::model::Hidden;
use crate::spec::tree::DraftTree;
use crate::types::{Batch, BatchEntry, Phase};

/// The integers of one round. Each round has its own, because all are uploaded before the first one is computed.
pub(super) struct Round<B: Backend> {
    step: B::Step,
    pick: B::Step,
}

impl<B: Backend> Round<B> {
    pub fn allocate(backend: &mut B, limits: &StepLimits, heads: Option<AttentionHeads>) -> Result<Self, BackendError> {
        let picks = StepLimits { segments: 0, pages: 0, ..*limits };
        Ok(Self { step: backend.allocate_step(limits, heads)?, pick: backend.allocate_step(&picks, None)? })
    }
}

impl<B: Backend> Drafter<B> {
    /// Whether this is a drafter of chains, and the logits of so many sequences are computed at once.
    pub fn drafts_alone(&self, sequences: usize) -> bool {
        !self.rounds.is_empty() && sequences <= self.model.logit_capacity()
    }

    /// Drafts a chain for every verify entry, nothing for the other entries. Nothing waits for the device: the chains
    /// name their tokens by the places where the device will have chosen them.
    pub fn draft_chains(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        batch: &Batch,
    ) -> Result<Vec<Option<DraftTree>>, PassError> {
        let mut trees: Vec<Option<DraftTree>> = vec![None; batch.entries.len()];
        let (mut drafting, mut rounds) = (Vec::new(), 0);
        for (tree, entry) in trees.iter_mut().zip(&batch.entries).filter(|(_, entry)| entry.phase == Phase::Verify) {
            let root = entry.tokens[0];
            if self.sequences[entry.slot.0 as usize].is_none() {
                *tree = Some(DraftTree::root(root));
                continue;
            }
            let steps = self.config.shape.within(entry.verify_tokens as usize).steps;
            let row = drafting.len();
            *tree = Some(DraftTree::chain(root, (0..steps).map(|round| chosen(self.place(round) + row))));
            drafting.push(entry);
            rounds = rounds.max(steps);
        }
        // A sequence that verifies less is drafted for as far as the others: its rows beyond are never read.
        for round in 0..rounds {
            self.upload_round(backend, round, &drafting)?;
        }
        if rounds > 0 {
            self.draft_rounds(backend, communicator, drafting.len(), rounds)?;
        }
        Ok(trees)
    }

    /// Has the device record the passes of `rows` sequences, for every number of rounds.
    pub fn record_chains(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        rows: usize,
    ) -> Result<(), PassError> {
        for round in 0..self.rounds.len() {
            self.upload_round(backend, round, &[])?;
        }
        (1..=self.rounds.len()).try_for_each(|rounds| self.draft_rounds(backend, communicator, rows, rounds))
    }

    /// Places of the device's choices, those of drafted tokens included.
    pub fn choices(&self) -> usize {
        self.config.places().end
    }

    /// Where the choices of a round go.
    fn place(&self, round: usize) -> usize {
        self.config.places().start + round * self.config.slots
    }

    /// The first round reads outputs that are kept; each further one is a pass over the token before it.
    fn upload_round(&mut self, backend: &mut B, round: usize, entries: &[&BatchEntry]) -> Result<(), BackendError> {
        self.input.clear();
        self.picks.clear();
        self.input.logit_rows.extend(0..entries.len() as u32);
        for (row, entry) in entries.iter().enumerate() {
            self.picks.logit_rows.push(if round <= 1 { entry.slot.0 } else { row as u32 });
            if round > 0 {
                let start = entry.start as usize + round - 1;
                self.input.tokens.push(chosen(self.place(round - 1) + row));
                self.input.positions.push(start as u32);
                let pages = self.enter_pages(entry);
                self.input.segments.push(Segment { first_row: row, rows: 1, start, pages, tree: None });
            }
        }
        let Round { step, pick } = &mut self.rounds[round];
        backend.upload(step, &self.input)?;
        backend.upload(pick, &self.picks)
    }

    fn draft_rounds(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        rows: usize,
        rounds: usize,
    ) -> Result<(), PassError> {
        let key = backend.padded(PassKey { name: "draft", phase: Phase::Draft, rows, logit_rows: rows * rounds });
        communicator.pass(backend, key, |backend, communicator| {
            (0..rounds).try_for_each(|round| self.draft_round(backend, communicator, round, key.rows))
        })
    }

    fn draft_round(
        &mut self,
        backend: &mut B,
        communicator: &mut Communicator<B>,
        round: usize,
        rows: usize,
    ) -> Result<(), PassError> {
        let (place, width, vocabulary) = (self.place(round), self.draft_vocabulary, self.tokens.as_ref());
        let Round { step, pick } = &self.rounds[round];
        let mut pass = Pass { backend, communicator, cache: &mut self.cache, step, phase: Phase::Draft, rows };
        match round {
            0 => self.model.recall(pass.backend, pick, rows)?,
            1 => self.model.draft(&mut pass, pick, Hidden::Carried)?,
            _ => self.model.draft(&mut pass, pick, Hidden::Previous)?,
        }
        let logits = self.model.logits(&mut pass, 0..rows)?;
        Ok(pass.backend.choose(Choose { logits, width, rows, vocabulary, place })?)
    }
}
