//! One rank: its share of the model, its cache and, on rank 0 and where steps run ahead, the choice of tokens.

mod ahead;
mod chooser;
mod launched;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use chooser::{ChoicePlace, Chooser};
use launched::Launched;

use super::config::{LoadProgress, RankFactory, RanksConfig, Speculation};
use super::input::{self, LogitRow};
use crate::backend::{Backend, CacheShape, Choose, DrawRows, MoveRows, PassKey, StepInput, chosen_index};
use crate::collective::{Communicator, PassError};
use crate::model::{self, Decoder, ModelError, Pass, Share};
use crate::spec::{Agreement, Decision, DraftStep, DraftTree, Drafter};
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
    /// On rank 0, and with a draft model on every rank.
    chooser: Option<Chooser>,
    /// Steps that the device has and whose tokens are not read.
    launched: VecDeque<Launched>,
    /// What each entry of the last step chose, of those whose tokens are read.
    last: Vec<Option<u32>>,
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
        let cache = backend.allocate_cache(&shape)?;
        let step = backend.allocate_step(&limits, model::attention_heads(&config.model, share))?;
        backend.allocate_choices(config.choices())?;
        let chooses = rank == 0 || drafter.is_some();
        let (chooser, page_size) = (chooses.then(|| Chooser::new(config, rank == 0)), capacity.page_size);
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
            launched: VecDeque::new(),
            last: Vec::new(),
        };
        // Ranks load at their own pace; those that are done first must not wait for the others inside a pass.
        worker.communicator.meet()?;
        worker.record(capacity).map_err(ModelError::Pass)?;
        Ok(worker)
    }

    /// One step. Rank 0 returns its output; the others have none.
    pub fn run(&mut self, batch: &Batch, agreement: &mut Agreement) -> Result<Option<StepOutput>, WorkerError> {
        let output = self.compute(batch, agreement);
        self.note(output.as_ref().ok().and_then(Option::as_ref));
        output
    }

    fn compute(&mut self, batch: &Batch, agreement: &mut Agreement) -> Result<Option<StepOutput>, WorkerError> {
        // A failure of the choice must not keep rank 0 from the collectives that the other ranks are coming to.
        let mut chosen = self.chooser.as_mut().map(|chooser| chooser.begin(batch));
        let caught_up = self.catch_up(batch)?;
        if let Some(drafter) = &mut self.drafter {
            drafter.begin(&mut self.backend, batch)?;
        }
        if let Some(Ok(output)) = &mut chosen
            && self.runs_ahead(batch)
        {
            return match self.run_ahead(batch, output)? {
                Ok(()) => {
                    output.timing.caught_up = self.caught_up(caught_up);
                    self.led(chosen).transpose().map_err(WorkerError::Step)
                }
                Err(message) => Err(WorkerError::Step(message)),
            };
        }
        let mut chosen = self.led(chosen);
        let started = Instant::now();
        let mut trees = self.draft(batch, agreement)?;
        let drafted = Instant::now();
        if batch.entries.is_empty() {
            return chosen.transpose().map_err(WorkerError::Step);
        }
        input::fill(batch, &trees, &mut self.input, &mut self.wanted);
        self.resolve(batch)?;
        self.forward(batch, &mut trees, &mut chosen)?;
        let computed = Instant::now();
        if self.drafter.is_some() {
            self.follow(batch, &chosen, agreement)?;
        }
        if let Some(Ok(output)) = &mut chosen {
            let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
            let (draft, target) = (seconds(started, drafted), seconds(drafted, computed));
            let follow = computed.elapsed().as_secs_f64();
            // A step that read nothing has not waited for the device, and need not for this.
            let caught_up = self.caught_up(caught_up && !self.wanted.is_empty());
            output.timing = StepTiming { draft, target, follow, caught_up };
        }
        chosen.transpose().map_err(WorkerError::Step)
    }

    /// What was chosen, on rank 0: in steps that do not run ahead it chooses for all.
    fn led(&self, chosen: Chosen) -> Chosen {
        chosen.filter(|_| self.communicator.rank() == 0)
    }

    /// The trees of verify entries; nothing without a draft model. Chains that the device drafts on its own name their
    /// tokens by place until the target's pass is done.
    fn draft(&mut self, batch: &Batch, agreement: &mut Agreement) -> Result<Vec<Option<DraftTree>>, WorkerError> {
        let alone = self.drafts_alone(batch);
        let Some(drafter) = &mut self.drafter else { return Ok(Vec::new()) };
        let (backend, communicator) = (&mut self.backend, &mut self.communicator);
        if alone {
            return Ok(drafter.draft_chains(backend, communicator, batch)?);
        }
        Ok(drafter.draft(&mut DraftStep { backend, communicator, agreement, batch })?)
    }

    /// The target's pass over the uploaded rows, and on rank 0 the choice of tokens from its logits.
    fn forward(
        &mut self,
        batch: &Batch,
        trees: &mut [Option<DraftTree>],
        chosen: &mut Chosen,
    ) -> Result<(), WorkerError> {
        self.backend.upload(&mut self.step, &self.input)?;
        let phase = input::phase(batch);
        let first = self.wanted.len().min(self.decoder.logit_capacity());
        self.pass(PassKey { name: PassKey::TARGET, phase, rows: self.input.rows(), logit_rows: first })?;
        let place = self.chooser.as_ref().map_or(ChoicePlace::Host, |chooser| chooser.place(batch, B::MOST_CHANGES, 0));
        let device = first == self.wanted.len() && place != ChoicePlace::Host && matches!(chosen, Some(Ok(_)));
        if device {
            self.draw(place, batch, trees, 0)?;
        }
        if chosen.is_some() {
            self.read_choices(if device { first } else { 0 }, trees)?;
        }
        if let (Some(chooser), Some(Ok(output)), true) = (&mut self.chooser, &mut *chosen, device) {
            if let Err(message) = chooser.take(batch, trees, &self.wanted, output) {
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
        communicator.pass(backend, key, |backend, communicator| {
            let PassKey { phase, rows, logit_rows, .. } = key;
            let mut pass = Pass { backend, communicator, cache, step: &*step, phase, rows };
            decoder.forward(&mut pass)?;
            if logit_rows > 0 {
                let logits = decoder.logits(&mut pass, 0..logit_rows)?;
                let (width, vocabulary) = (*vocabulary, None);
                pass.backend.choose(Choose { logits, width, rows: logit_rows, vocabulary, place: 0 })?;
            }
            Ok(())
        })
    }

    /// Waits for the device's choices of the first logit rows, and for all of them where trees name their places.
    fn read_choices(&mut self, first: usize, trees: &mut [Option<DraftTree>]) -> Result<(), PassError> {
        let Some(chooser) = &mut self.chooser else { return Ok(()) };
        let named = trees.iter().flatten().flat_map(|tree| &tree.tokens).any(|token| chosen_index(*token).is_some());
        let drafted = self.drafter.as_ref().filter(|_| named).map_or(0, Drafter::choices);
        self.backend.read_choices(0, chooser.ids(first.max(drafted)))?;
        chooser.resolve(trees);
        Ok(())
    }

    /// Has the device draw where the largest logits are not what is wanted.
    fn draw(
        &mut self,
        place: ChoicePlace,
        batch: &Batch,
        trees: &[Option<DraftTree>],
        unknown: u32,
    ) -> Result<(), PassError> {
        let Some(chooser) = self.chooser.as_mut().filter(|_| place == ChoicePlace::Device) else { return Ok(()) };
        let (draws, changes) = chooser.draws(batch, trees, &self.wanted, unknown);
        let (logits, width) = (self.decoder.last_logits_mut(), self.vocabulary);
        Ok(self.backend.draw(DrawRows { logits, width, draws, changes, place: 0 })?)
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
    /// model runs over what was committed, now or later.
    fn follow(&mut self, batch: &Batch, chosen: &Chosen, agreement: &mut Agreement) -> Result<(), WorkerError> {
        let Some(drafter) = &mut self.drafter else { return Ok(()) };
        let own = self.chooser.as_ref().filter(|_| agreement.leads()).map(|chooser| chooser.decision(chosen));
        let decision = agreement.share(own)?;
        let Decision::Outcomes(outcomes) = &*decision else { return Ok(()) };
        if let Some(chooser) = self.chooser.as_mut().filter(|_| !agreement.leads()) {
            chooser.note(batch, outcomes).map_err(WorkerError::Step)?;
        }
        let first_rows: Vec<usize> = self.input.segments.iter().map(|segment| segment.first_row).collect();
        input::fill_moves(batch, outcomes, self.page_size, &mut self.input);
        if !self.input.moves.is_empty() {
            self.backend.upload(&mut self.step, &self.input)?;
            self.backend.move_rows(MoveRows { step: &self.step, cache: &mut self.cache })?;
        }
        let Some(features) = self.decoder.taps() else { return Ok(()) };
        if drafter.may_wait(batch) {
            drafter.append(batch, outcomes);
            return Ok(drafter.put_aside(&mut self.backend, batch, features)?);
        }
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
