//! One rank's part in drafting: the draft model, its cache, and the tokens of every running sequence.

mod backlog;
mod chains;
mod extend;
mod levels;

use std::ops::Range;

use backlog::Backlog;
pub use backlog::STEPS as BACKLOG_STEPS;
use chains::Round;
use extend::Entered;
pub use extend::EntryRows;

use super::agreement::Agreement;
use super::checkpoint::HeadCheckpoint;
use super::model::DraftModel;
use super::shape::DraftShape;
use super::vocabulary::DraftVocabulary;
use crate::backend::{Backend, BackendError, CacheShape, StepInput, StepLimits, TreeMask};
use crate::collective::Communicator;
use crate::model::{Decoder, Limits, ModelError, Share, attention_heads, cache_layout};
use crate::types::{Batch, BatchEntry, Sampling};

/// Sizes of a drafter; those of the executor that it is part of.
#[derive(Clone, Copy, Debug)]
pub struct DrafterConfig {
    pub shape: DraftShape,
    pub pages: usize,
    pub page_size: usize,
    pub slots: usize,
    /// Rows of the target's step.
    pub rows: usize,
    pub logit_rows: usize,
    /// Longest sequence.
    pub context: usize,
}

/// What a drafter works with in one step.
pub struct DraftStep<'a, B: Backend> {
    pub backend: &'a mut B,
    pub communicator: &'a mut Communicator<B>,
    pub agreement: &'a mut Agreement,
    pub batch: &'a Batch,
}

pub struct Drafter<B: Backend> {
    model: DraftModel<B>,
    vocabulary: DraftVocabulary,
    config: DrafterConfig,
    /// The draft group's pages: those of the block tables, then pages for drafted rows of each slot.
    cache: B::Cache,
    step: B::Step,
    /// Which rows a pass reads.
    pick: B::Step,
    /// Rounds of chains that the device drafts on its own, one for each drafted token; none for trees.
    rounds: Vec<Round<B>>,
    /// The target's tokens on the device; none where the draft's are the same.
    tokens: Option<B::Tokens>,
    input: StepInput,
    picks: StepInput,
    /// What the last pass over committed rows was made of.
    entered: Entered,
    /// Rows that no pass has been over.
    backlog: Backlog<B>,
    /// Tokens of the sequence in each slot, prompt and output.
    sequences: Vec<Option<Vec<u32>>>,
    /// Draft logits on the host, `[logit capacity, draft vocabulary]`.
    logits: Vec<f32>,
    draft_vocabulary: usize,
}

impl<B: Backend> Drafter<B> {
    /// Loads the draft model beside its target and reserves its cache.
    pub fn load(
        backend: &mut B,
        head: &HeadCheckpoint,
        target: &Decoder<B>,
        share: Share,
        config: DrafterConfig,
    ) -> Result<Self, ModelError> {
        let DrafterConfig { shape, pages, page_size, slots, rows, logit_rows, context } = config;
        let limits = Limits { rows, logit_rows, context };
        let model = DraftModel::load(backend, head, target, share, limits, slots)?;
        let pages = pages + slots * config.scratch_pages();
        let layout = cache_layout(&head.config, share);
        let cache = backend.allocate_cache(&CacheShape { layers: 1, pages, page_size, layout })?;
        let pages_each = context.div_ceil(page_size) + config.scratch_pages();
        let mask_words = rows * TreeMask::row_words(shape.topk * shape.steps);
        let limits = StepLimits { rows: rows.max(slots), segments: slots, pages: slots * pages_each, mask_words };
        // Which rows a pass reads is a list of rows alone.
        let picks = StepLimits { segments: 0, pages: 0, mask_words: 0, ..limits };
        let heads = attention_heads(&head.config, share);
        let rounds = if shape.topk == 1 { shape.steps } else { 0 };
        let round = StepLimits { rows: slots, mask_words: 0, ..limits };
        let draft_vocabulary = head.config.vocabulary;
        Ok(Self {
            step: backend.allocate_step(&limits, heads)?,
            pick: backend.allocate_step(&picks, None)?,
            rounds: (0..rounds).map(|_| Round::allocate(backend, &round, heads)).collect::<Result<_, _>>()?,
            tokens: head.vocabulary.tokens().map(|tokens| backend.load_tokens(tokens)).transpose()?,
            logits: vec![0.0; model.logit_capacity() * draft_vocabulary],
            sequences: vec![None; slots],
            vocabulary: head.vocabulary.clone(),
            input: StepInput::default(),
            picks: StepInput::default(),
            entered: Entered::default(),
            backlog: Backlog::allocate(backend, &config, model.feature_width())?,
            model,
            config,
            cache,
            draft_vocabulary,
        })
    }

    /// Keeps what the last step's pass gave, forgets retired sequences and takes in those that begin.
    pub fn begin(&mut self, backend: &mut B, batch: &Batch) -> Result<(), BackendError> {
        self.carry(backend)?;
        for slot in &batch.retired {
            if let Some(sequence) = self.sequences.get_mut(slot.0 as usize) {
                *sequence = None;
            }
        }
        for entry in &batch.entries {
            if let (Some(Sampling { prompt, output, .. }), Some(sequence)) =
                (&entry.begin, self.sequences.get_mut(entry.slot.0 as usize))
            {
                *sequence = Some(prompt.iter().chain(output).copied().collect());
            }
        }
        Ok(())
    }

    /// Adds the pages of an entry's draft passes: its own, then its slot's for drafted rows. Returns where they are.
    fn enter_pages(&mut self, entry: &BatchEntry) -> Range<usize> {
        let (first, scratch) = (self.input.pages.len(), self.config.scratch_pages());
        self.input.pages.extend(entry.pages.iter().map(|page| page.0));
        let first_scratch = self.config.pages + entry.slot.0 as usize * scratch;
        self.input.pages.extend((first_scratch..first_scratch + scratch).map(|page| page as u32));
        first..self.input.pages.len()
    }

    fn upload(&mut self, backend: &mut B) -> Result<(), BackendError> {
        backend.upload(&mut self.step, &self.input)?;
        backend.upload(&mut self.pick, &self.picks)
    }
}

impl DrafterConfig {
    /// Places of drafted tokens among the device's choices: behind those of the target's logit rows.
    pub fn places(&self) -> Range<usize> {
        let drafted = if self.shape.topk == 1 { self.shape.steps * self.slots } else { 0 };
        self.logit_rows..self.logit_rows + drafted
    }

    /// Pages of a slot for drafted rows beyond its own pages.
    fn scratch_pages(&self) -> usize {
        self.shape.scratch_rows().div_ceil(self.page_size)
    }
}
