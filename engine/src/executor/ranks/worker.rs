//! One rank: its share of the model, its cache and, on rank 0, the choice of tokens.

use std::sync::Arc;

use super::choice::Choices;
use super::config::{LoadProgress, RankFactory, RanksConfig};
use super::input::{self, LogitRow};
use crate::backend::{Backend, CacheShape, StepInput};
use crate::collective::{Communicator, PassError};
use crate::model::{self, Decoder, ModelError, Pass, Share};
use crate::types::{Batch, StepOutput};

/// Why a step gave nothing.
#[derive(Debug)]
pub(super) enum WorkerError {
    /// This rank cannot go on.
    Pass(PassError),
    /// The step is lost, the rank is not.
    Step(String),
}

impl<E: Into<PassError>> From<E> for WorkerError {
    fn from(error: E) -> Self {
        Self::Pass(error.into())
    }
}

pub(super) struct Worker<B: Backend> {
    backend: B,
    communicator: Communicator<B>,
    decoder: Decoder<B>,
    cache: B::Cache,
    step: B::Step,
    /// What is uploaded, and which logit rows it asks for; reused between steps.
    input: StepInput,
    wanted: Vec<LogitRow>,
    /// On rank 0.
    chooser: Option<Chooser>,
}

struct Chooser {
    choices: Choices,
    /// Logits on the host, `[logit_rows, vocabulary]`.
    logits: Vec<f32>,
    vocabulary: usize,
}

impl<B: Backend> Worker<B> {
    pub fn load<F: RankFactory<Backend = B>>(
        factory: &F,
        config: &RanksConfig,
        rank: usize,
        progress: &dyn Fn(LoadProgress),
    ) -> Result<Self, ModelError> {
        let (capacity, world_size) = (&config.capacity, factory.world_size());
        let mut backend = factory.backend(rank)?;
        let communicator = if world_size == 1 {
            Communicator::single()
        } else {
            let group = factory.collective(rank, &mut backend)?;
            Communicator::new(group, Arc::clone(&config.plan), Arc::clone(&config.counters))
        };
        let mut report = |layers_done| progress(LoadProgress { rank, layers_done, layers: config.model.layers });
        let share = Share { rank, world_size };
        let decoder = model::load(&mut backend, &*config.weights, &config.model, share, config.limits(), &mut report)?;
        let (pages, page_size) = (capacity.pages as usize, capacity.page_size as usize);
        let layout = model::cache_layout(&config.model, share);
        let shape = CacheShape { layers: decoder.layers(), pages, page_size, layout };
        let (cache, step) = (backend.allocate_cache(&shape)?, backend.allocate_step(&input::limits(capacity))?);
        let chooser = (rank == 0).then(|| Chooser::new(config));
        let (input, wanted) = Default::default();
        Ok(Self { backend, communicator, decoder, cache, step, input, wanted, chooser })
    }

    /// One step. Rank 0 returns its output; the others have none.
    pub fn run(&mut self, batch: &Batch) -> Result<Option<StepOutput>, WorkerError> {
        input::fill(batch, &mut self.input, &mut self.wanted);
        // A failure of the choice must not keep rank 0 from the collectives that the other ranks are coming to.
        let mut chosen = self.chooser.as_mut().map(|chooser| chooser.begin(batch));
        if batch.entries.is_empty() {
            return chosen.transpose().map_err(WorkerError::Step);
        }
        self.backend.upload(&mut self.step, &self.input)?;
        let mut pass = Pass {
            backend: &mut self.backend,
            communicator: &mut self.communicator,
            cache: &mut self.cache,
            step: &self.step,
            phase: input::phase(batch),
            rows: self.input.rows(),
        };
        self.decoder.forward(&mut pass)?;
        let capacity = self.decoder.logit_capacity();
        for first in (0..self.wanted.len()).step_by(capacity) {
            let range = first..(first + capacity).min(self.wanted.len());
            let logits = self.decoder.logits(&mut pass, range.clone())?;
            let (Some(chooser), Some(Ok(output))) = (&mut self.chooser, &mut chosen) else { continue };
            let read = chooser.host(range.len());
            pass.backend.read(logits, 0, read)?;
            if let Err(message) = chooser.read(batch, &self.wanted[range], output) {
                chosen = Some(Err(message));
            }
        }
        chosen.transpose().map_err(WorkerError::Step)
    }
}

impl Chooser {
    fn new(config: &RanksConfig) -> Self {
        let vocabulary = config.model.vocabulary;
        let logits = vec![0.0; config.logit_rows * vocabulary];
        Self { choices: Choices::new(config.capacity.slots as usize), logits, vocabulary }
    }

    fn begin(&mut self, batch: &Batch) -> Result<StepOutput, String> {
        self.choices.prepare(batch)?;
        Ok(StepOutput { entries: vec![Default::default(); batch.entries.len()] })
    }

    fn host(&mut self, rows: usize) -> &mut [f32] {
        &mut self.logits[..rows * self.vocabulary]
    }

    fn read(&mut self, batch: &Batch, wanted: &[LogitRow], output: &mut StepOutput) -> Result<(), String> {
        for (row, logits) in wanted.iter().zip(self.logits.chunks_exact_mut(self.vocabulary)) {
            self.choices.read(&batch.entries[row.entry], *row, logits, &mut output.entries[row.entry])?;
        }
        Ok(())
    }
}
