//! One rank: its share of the model, its cache and, on rank 0, the choice of tokens.

use std::sync::Arc;
use std::time::Instant;

use super::choice::{Choices, Verified};
use super::config::{LoadProgress, RankFactory, RanksConfig, Speculation};
use super::input::{self, LogitRow};
use crate::backend::{Backend, BackendError, CacheShape, MoveRows, PassKey, StepInput};
use crate::collective::{Communicator, PassError};
use crate::model::{self, Decoder, ModelError, Pass, Share};
use crate::spec::{Agreement, Decision, DraftStep, DraftTree, Drafter, Outcome, Walk};
use crate::types::{Batch, Phase, StepOutput, StepTiming};

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
    drafter: Option<Drafter<B>>,
    cache: B::Cache,
    step: B::Step,
    /// What is uploaded, and which logit rows it asks for; reused between steps.
    input: StepInput,
    wanted: Vec<LogitRow>,
    page_size: u32,
    vocabulary: usize,
    /// On rank 0.
    chooser: Option<Chooser>,
}

struct Chooser {
    choices: Choices,
    /// The way through each entry's tree; used for verify entries alone.
    walks: Vec<Walk>,
    /// Logits on the host, `[logit_rows, vocabulary]`.
    logits: Vec<f32>,
    /// Choices of the device, one per logit row.
    ids: Vec<u32>,
    vocabulary: usize,
}

/// What rank 0 has chosen so far, or why it cannot; nothing on the other ranks.
type Chosen = Option<Result<StepOutput, String>>;

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
        let mut decoder =
            model::load(&mut backend, &*config.weights, &config.model, share, config.limits(), &mut report)?;
        let drafter = match &config.speculation {
            Some(speculation) => Some(draft_model(&mut backend, config, speculation, &mut decoder, share)?),
            None => None,
        };
        let (pages, page_size) = (capacity.pages as usize, capacity.page_size as usize);
        let layout = model::cache_layout(&config.model, share);
        let shape = CacheShape { layers: decoder.layers(), pages, page_size, layout };
        let limits = input::limits(capacity, config.verify_tokens());
        let (cache, step) = (backend.allocate_cache(&shape)?, backend.allocate_step(&limits)?);
        let (chooser, page_size) = ((rank == 0).then(|| Chooser::new(config)), capacity.page_size);
        let (input, wanted) = Default::default();
        let vocabulary = config.model.vocabulary;
        let mut worker = Self {
            backend,
            communicator,
            decoder,
            drafter,
            cache,
            step,
            input,
            wanted,
            page_size,
            vocabulary,
            chooser,
        };
        worker.record(capacity.slots.min(capacity.rows) as usize).map_err(ModelError::Pass)?;
        Ok(worker)
    }

    /// Has the device record the decode passes that it will replay.
    fn record(&mut self, rows: usize) -> Result<(), PassError> {
        let most = rows.min(self.decoder.logit_capacity());
        for rows in self.backend.recorded_rows(most) {
            self.backend.upload(&mut self.step, &self.input)?;
            self.pass(PassKey { name: "target", phase: Phase::Decode, rows, logit_rows: rows })?;
        }
        Ok(())
    }

    /// One step. Rank 0 returns its output; the others have none.
    pub fn run(&mut self, batch: &Batch, agreement: &mut Agreement) -> Result<Option<StepOutput>, WorkerError> {
        // A failure of the choice must not keep rank 0 from the collectives that the other ranks are coming to.
        let mut chosen = self.chooser.as_mut().map(|chooser| chooser.begin(batch));
        let started = Instant::now();
        let trees = self.draft(batch, agreement)?;
        let drafted = Instant::now();
        if batch.entries.is_empty() {
            return chosen.transpose().map_err(WorkerError::Step);
        }
        input::fill(batch, &trees, &mut self.input, &mut self.wanted);
        self.forward(batch, &trees, &mut chosen)?;
        let computed = Instant::now();
        if self.drafter.is_some() {
            self.follow(batch, &chosen, agreement)?;
        }
        if let Some(Ok(output)) = &mut chosen {
            let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
            let (draft, target) = (seconds(started, drafted), seconds(drafted, computed));
            output.timing = StepTiming { draft, target, follow: computed.elapsed().as_secs_f64() };
        }
        chosen.transpose().map_err(WorkerError::Step)
    }

    /// The trees of verify entries; nothing without a draft model.
    fn draft(&mut self, batch: &Batch, agreement: &mut Agreement) -> Result<Vec<Option<DraftTree>>, WorkerError> {
        let Some(drafter) = &mut self.drafter else { return Ok(Vec::new()) };
        drafter.begin(batch);
        let (backend, communicator) = (&mut self.backend, &mut self.communicator);
        Ok(drafter.draft(&mut DraftStep { backend, communicator, agreement, batch })?)
    }

    /// The target's pass over the uploaded rows, and on rank 0 the choice of tokens from its logits.
    fn forward(&mut self, batch: &Batch, trees: &[Option<DraftTree>], chosen: &mut Chosen) -> Result<(), WorkerError> {
        self.backend.upload(&mut self.step, &self.input)?;
        let phase = input::phase(batch);
        let first = self.wanted.len().min(self.decoder.logit_capacity());
        self.pass(PassKey { name: "target", phase, rows: self.input.rows(), logit_rows: first })?;
        if let (Some(chooser), Some(Ok(output))) = (&mut self.chooser, &mut *chosen)
            && B::CHOOSES
            && phase != Phase::Verify
            && first == self.wanted.len()
            && chooser.choices.takes_largest(batch)
        {
            if let Err(message) = chooser.take(&mut self.backend, batch, &self.wanted, output)? {
                *chosen = Some(Err(message));
            }
            return Ok(());
        }
        Ok(self.read_logits(batch, trees, (phase, first), chosen)?)
    }

    /// The forward pass with the first logit rows, as a device may record and replay it.
    fn pass(&mut self, key: PassKey) -> Result<(), PassError> {
        let Self { backend, communicator, decoder, cache, step, vocabulary, .. } = self;
        let key = backend.padded(key);
        backend.pass(key, |backend| {
            let PassKey { phase, rows, logit_rows, .. } = key;
            let mut pass = Pass { backend, communicator, cache, step: &*step, phase, rows };
            decoder.forward(&mut pass)?;
            if logit_rows > 0 {
                let logits = decoder.logits(&mut pass, 0..logit_rows)?;
                pass.backend.choose(logits, *vocabulary, logit_rows)?;
            }
            Ok(())
        })
    }

    /// Reads the logits that the pass computed, then those of further rows, and chooses on rank 0.
    fn read_logits(
        &mut self,
        batch: &Batch,
        trees: &[Option<DraftTree>],
        (phase, first): (Phase, usize),
        chosen: &mut Chosen,
    ) -> Result<(), PassError> {
        let (rows, capacity) = (self.input.rows(), self.decoder.logit_capacity());
        for start in (0..self.wanted.len()).step_by(capacity) {
            let range = start..(start + capacity).min(self.wanted.len());
            if start >= first {
                let Self { backend, communicator, cache, step, .. } = self;
                let mut pass = Pass { backend, communicator, cache, step: &*step, phase, rows };
                self.decoder.logits(&mut pass, range.clone())?;
            }
            let (Some(chooser), Some(Ok(output))) = (&mut self.chooser, &mut *chosen) else { continue };
            self.backend.read(self.decoder.last_logits(), 0, chooser.host(range.len()))?;
            if let Err(message) = chooser.read(batch, trees, &self.wanted[range], output) {
                *chosen = Some(Err(message));
            }
        }
        Ok(())
    }

    /// What follows the choice on every rank: accepted paths become consecutive in the target's cache, and the draft
    /// model runs over what was committed.
    fn follow(&mut self, batch: &Batch, chosen: &Chosen, agreement: &mut Agreement) -> Result<(), WorkerError> {
        let Some(drafter) = &mut self.drafter else { return Ok(()) };
        let own = self.chooser.as_ref().map(|chooser| chooser.decision(chosen));
        let decision = agreement.share(own)?;
        let Decision::Outcomes(outcomes) = &*decision else { return Ok(()) };
        let first_rows: Vec<usize> = self.input.segments.iter().map(|segment| segment.first_row).collect();
        input::fill_moves(batch, outcomes, self.page_size, &mut self.input);
        if !self.input.moves.is_empty() {
            self.backend.upload(&mut self.step, &self.input)?;
            self.backend.move_rows(MoveRows { step: &self.step, cache: &mut self.cache })?;
        }
        let Some(features) = self.decoder.taps() else { return Ok(()) };
        let (backend, communicator) = (&mut self.backend, &mut self.communicator);
        let mut at = DraftStep { backend, communicator, agreement, batch };
        Ok(drafter.extend(&mut at, features, &first_rows, outcomes)?)
    }
}

/// Loads the draft model and lets the target give it what it reads.
fn draft_model<B: Backend>(
    backend: &mut B,
    config: &RanksConfig,
    speculation: &Speculation,
    decoder: &mut Decoder<B>,
    share: Share,
) -> Result<Drafter<B>, ModelError> {
    let Speculation { head, shape } = speculation;
    decoder.tap(backend, head.taps.boundaries.clone())?;
    Drafter::load(backend, head, decoder, share, config.drafter(*shape))
}

impl Chooser {
    fn new(config: &RanksConfig) -> Self {
        let vocabulary = config.model.vocabulary;
        let (logits, ids) = (vec![0.0; config.logit_rows * vocabulary], vec![0; config.logit_rows]);
        Self { choices: Choices::new(config.capacity.slots as usize), walks: Vec::new(), logits, ids, vocabulary }
    }

    fn begin(&mut self, batch: &Batch) -> Result<StepOutput, String> {
        self.choices.prepare(batch)?;
        self.walks.clear();
        self.walks.resize_with(batch.entries.len(), Walk::new);
        Ok(StepOutput { entries: vec![Default::default(); batch.entries.len()], ..StepOutput::default() })
    }

    /// Tokens that the device chose.
    fn take<B: Backend>(
        &mut self,
        backend: &mut B,
        batch: &Batch,
        wanted: &[LogitRow],
        output: &mut StepOutput,
    ) -> Result<Result<(), String>, BackendError> {
        let ids = &mut self.ids[..wanted.len()];
        backend.read_choices(ids)?;
        let taken = wanted.iter().zip(ids.iter()).try_for_each(|(row, id)| {
            self.choices.take(&batch.entries[row.entry], *id, &mut output.entries[row.entry])
        });
        Ok(taken)
    }

    fn host(&mut self, rows: usize) -> &mut [f32] {
        &mut self.logits[..rows * self.vocabulary]
    }

    fn read(
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

    /// What the other ranks must know of the choice.
    fn decision(&self, chosen: &Chosen) -> Decision {
        let Some(Ok(output)) = chosen else { return Decision::Lost };
        let outcome = |(entry, walk): (&crate::types::EntryOutput, &Walk)| Outcome {
            tokens: entry.tokens.iter().map(|token| token.id).collect(),
            path: walk.path().to_vec(),
        };
        Decision::Outcomes(output.entries.iter().zip(&self.walks).map(outcome).collect())
    }
}
