//! What a rank makes of the logits, or of the tokens that the device chose from them.

use super::Chosen;
use crate::backend::chosen_index;
use crate::executor::ranks::choice::{Choices, Verified};
use crate::executor::ranks::config::RanksConfig;
use crate::executor::ranks::input::LogitRow;
use crate::sampler::{Draw, LogitChange};
use crate::spec::{Decision, DraftTree, Outcome, Walk};
use crate::types::{Batch, EntryOutput, StepOutput};

/// Who chooses the tokens of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChoicePlace {
    /// The pass itself: its largest logits are all that is wanted.
    Pass,
    /// The device, after the pass, as each request says.
    Device,
    /// The host, which reads the logits: log-probabilities are wanted, penalties along a drafted path, or more changes
    /// of logits than the device takes.
    Host,
}

pub(super) struct Chooser {
    choices: Choices,
    /// The way through each entry's tree; used for verify entries alone.
    walks: Vec<Walk>,
    /// Logits on the host, `[logit_rows, vocabulary]`.
    logits: Vec<f32>,
    /// The device's choices by place: one per logit row, then the drafted tokens.
    ids: Vec<u32>,
    vocabulary: usize,
    /// How the device draws; reused between steps.
    draws: Vec<Draw>,
    changes: Vec<LogitChange>,
}

impl Chooser {
    /// `reads`: whether logits are ever read to the host here.
    pub fn new(config: &RanksConfig, reads: bool) -> Self {
        let vocabulary = config.model.vocabulary;
        let rows = if reads { config.logit_rows } else { 0 };
        let (logits, ids) = (vec![0.0; rows * vocabulary], vec![0; config.choices()]);
        Self {
            choices: Choices::new(config.capacity.slots as usize),
            walks: Vec::new(),
            logits,
            ids,
            vocabulary,
            draws: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Forgets retired sequences and takes in those that begin. Errors: an entry whose sequence never began.
    pub fn begin(&mut self, batch: &Batch) -> Result<StepOutput, String> {
        self.choices.prepare(batch)?;
        self.walks.clear();
        self.walks.resize_with(batch.entries.len(), Walk::new);
        Ok(StepOutput { entries: vec![Default::default(); batch.entries.len()], ..StepOutput::default() })
    }

    /// Where the tokens of this batch are chosen. `most_changes` is the device's; `unknown` tokens before the batch's own
    /// are not known yet.
    pub fn place(&self, batch: &Batch, most_changes: usize, unknown: u32) -> ChoicePlace {
        if self.choices.takes_largest(batch) {
            ChoicePlace::Pass
        } else if self.choices.draws(batch, most_changes, unknown) {
            ChoicePlace::Device
        } else {
            ChoicePlace::Host
        }
    }

    /// How the tokens of the wanted rows are drawn, and the changes of logits that this names. Of entries that continue with
    /// [`chosen`](crate::types::chosen) tokens, `unknown` ones are not known yet.
    pub fn draws(
        &mut self,
        batch: &Batch,
        trees: &[Option<DraftTree>],
        wanted: &[LogitRow],
        unknown: u32,
    ) -> (&[Draw], &[LogitChange]) {
        let Self { choices, draws, changes, .. } = self;
        draws.clear();
        changes.clear();
        for LogitRow { entry, row } in wanted {
            let tree = trees.get(*entry).and_then(Option::as_ref);
            let (depth, entry) = (tree.map_or(0, |tree| tree.depths[*row]), &batch.entries[*entry]);
            let before = if entry.tokens.iter().any(|token| chosen_index(*token).is_some()) { unknown } else { 0 };
            draws.extend(choices.draw(entry, depth + before, changes));
        }
        (draws, changes)
    }

    /// Where the device's choices of the first places go.
    pub fn ids(&mut self, places: usize) -> &mut [u32] {
        &mut self.ids[..places]
    }

    /// Puts the tokens that the device drafted in the places that trees name.
    pub fn resolve(&self, trees: &mut [Option<DraftTree>]) {
        for token in trees.iter_mut().flatten().flat_map(|tree| &mut tree.tokens) {
            *token = chosen_index(*token).map_or(*token, |place| self.ids[place]);
        }
    }

    /// Takes the tokens that the device chose, one for each wanted row.
    pub fn take(
        &mut self,
        batch: &Batch,
        trees: &[Option<DraftTree>],
        wanted: &[LogitRow],
        output: &mut StepOutput,
    ) -> Result<(), String> {
        for (row, id) in wanted.iter().zip(&self.ids) {
            let tree = trees.get(row.entry).and_then(Option::as_ref);
            let verified = tree.map(|tree| Verified { tree, walk: &mut self.walks[row.entry] });
            self.choices.take(&batch.entries[row.entry], *row, *id, verified, &mut output.entries[row.entry])?;
        }
        Ok(())
    }

    pub fn host(&mut self, rows: usize) -> &mut [f32] {
        &mut self.logits[..rows * self.vocabulary]
    }

    pub fn read(
        &mut self,
        batch: &Batch,
        trees: &[Option<DraftTree>],
        wanted: &[LogitRow],
        output: &mut StepOutput,
    ) -> Result<(), String> {
        for (row, logits) in wanted.iter().zip(self.logits.chunks_exact_mut(self.vocabulary)) {
            let (entry, walk) = (&batch.entries[row.entry], &mut self.walks[row.entry]);
            let tree = trees.get(row.entry).and_then(Option::as_ref);
            let verified = tree.map(|tree| Verified { tree, walk });
            self.choices.read(entry, *row, logits, verified, &mut output.entries[row.entry])?;
        }
        Ok(())
    }

    /// Takes what another rank chose for all. Errors: an entry whose sequence never began.
    pub fn note(&mut self, batch: &Batch, outcomes: &[Outcome]) -> Result<(), String> {
        batch.entries.iter().zip(outcomes).try_for_each(|(entry, outcome)| self.choices.note(entry, &outcome.tokens))
    }

    /// What the other ranks must know of the choice.
    pub fn decision(&self, chosen: &Chosen) -> Decision {
        let Some(Ok(output)) = chosen else { return Decision::Lost };
        Decision::Outcomes(self.outcomes(output))
    }

    /// What the step made of each entry.
    pub fn outcomes(&self, output: &StepOutput) -> Vec<Outcome> {
        let outcome = |(entry, walk): (&EntryOutput, &Walk)| Outcome {
            tokens: entry.tokens.iter().map(|token| token.id).collect(),
            path: walk.path().to_vec(),
        };
        output.entries.iter().zip(&self.walks).map(outcome).collect()
    }
}
