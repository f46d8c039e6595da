//! One rank's part in drafting: the draft model, its cache, and the tokens of every running sequence.

mod extend;
mod levels;

use super::agreement::Agreement;
use super::checkpoint::HeadCheckpoint;
use super::model::DraftModel;
use super::shape::DraftShape;
use super::vocabulary::DraftVocabulary;
use crate::backend::{Backend, BackendError, CacheShape, StepInput, StepLimits, TreeMask};
use crate::collective::Communicator;
use crate::model::{Decoder, Limits, ModelError, Pass, Share, cache_layout};
use crate::types::{Batch, Phase, Sampling};

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
    input: StepInput,
    picks: StepInput,
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
        let DrafterConfig { pages, page_size, slots, rows, logit_rows, context, .. } = config;
        let limits = Limits { rows, logit_rows, context };
        let model = DraftModel::load(backend, head, target, share, limits, slots)?;
        let pages = pages + slots * config.scratch_pages();
        let layout = cache_layout(&head.config, share);
        let cache = backend.allocate_cache(&CacheShape { layers: 1, pages, page_size, layout })?;
        let pages_each = context.div_ceil(page_size) + config.scratch_pages();
        let mask_words = rows * TreeMask::row_words(config.shape.topk * config.shape.steps);
        let limits = StepLimits { rows: rows.max(slots), segments: slots, pages: slots * pages_each, mask_words };
        let draft_vocabulary = head.config.vocabulary;
        Ok(Self {
            step: backend.allocate_step(&limits)?,
            pick: backend.allocate_step(&limits)?,
            logits: vec![0.0; model.logit_capacity() * draft_vocabulary],
            sequences: vec![None; slots],
            vocabulary: head.vocabulary.clone(),
            input: StepInput::default(),
            picks: StepInput::default(),
            model,
            config,
            cache,
            draft_vocabulary,
        })
    }

    /// Forgets retired sequences and takes in those that begin.
    pub fn begin(&mut self, batch: &Batch) {
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
    }

    fn upload(&mut self, backend: &mut B) -> Result<(), BackendError> {
        backend.upload(&mut self.step, &self.input)?;
        backend.upload(&mut self.pick, &self.picks)
    }
}

impl DrafterConfig {
    /// Pages of a slot for drafted rows beyond its own pages.
    fn scratch_pages(&self) -> usize {
        self.shape.scratch_rows().div_ceil(self.page_size)
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
