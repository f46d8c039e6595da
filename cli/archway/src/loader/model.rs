//! A model on the devices that were chosen for it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use engine::backend::BackendError;
use engine::collective::CallCounters;
use engine::executor::{Capacity, LoadProgress, RanksConfig, RanksExecutor, Speculation, StartError};
use engine::load::{Model, open_model};
use engine::model::ModelError;
use engine::plan::{Plan, PlanRequest, PlanVerdict};
use engine::runner::{Engine, EngineConfig, NoText, TextPipeline, TokenizerText};
use engine::spec::PaceSettings;
use engine_cpu::THREADS;
use engine_gpu::collective::SelfTestFailure;
use engine_server::metrics::Histograms;
use engine_server::service::{ModelCard, Service, check_defaults};

use super::capacity;
use super::codec::ModelCodec;
use super::devices::Devices;
use super::report::ServedPlan;
use super::request::{Wanted, open_options, served_names};
use crate::progress;
use crate::rendering::TemplatePool;
use crate::settings::Options;

/// A model with a plan that is not refused.
pub struct Planned {
    pub plan: Plan,
    /// What the plan was made for, to make another where a part of it fails its self-test.
    request: PlanRequest,
    wanted: Wanted,
    /// Its files are open, its weights are not read.
    model: Model,
    capacity: Capacity,
    speculation: Option<Speculation>,
    options: Options,
    devices: Devices,
}

/// Reads the model's shape, plans, and opens its files. Errors: those of a plan; weights, a tokenizer or defaults that are not
/// there, are cut off or cannot be read.
pub fn prepare(model: &str, options: &Options) -> Result<Planned> {
    let wanted = Wanted::read(model, options)?;
    let devices = Devices::choose(options, &wanted.config)?;
    let kind = devices.kind();
    let speculation = wanted.draft(kind, options)?;
    let machine = (kind, devices.machine(options), devices.tuning());
    let request = wanted.request(machine, speculation.as_ref(), options)?;
    let mut plan = plan(&request)?;
    let capacity = capacity::of(options, &mut plan, &wanted.config, (wanted.context, kind.sizes()))?;
    let model = open(&wanted, options)?;
    Ok(Planned { plan, request, wanted, model, capacity, speculation, options: options.clone(), devices })
}

fn open(wanted: &Wanted, options: &Options) -> Result<Model> {
    let mut model = open_model(&wanted.path, &open_options(options))?;
    if let Err(error) = check_defaults(&model.generation) {
        bail!("generation_config.json beside the weights: {}; fix it, or remove it", error.message);
    }
    if let Some(tokenizer) = &wanted.tokenizer {
        model.tokenizer = Some(Arc::clone(tokenizer));
    }
    Ok(model)
}

/// The plan of a request. Errors: it is refused, or nothing can compute the model.
fn plan(request: &PlanRequest) -> Result<Plan> {
    let plan = engine::plan::build(request)?;
    if plan.verdict == PlanVerdict::Refused {
        bail!("the plan is refused, nothing was loaded\n\n{plan}");
    }
    if !plan.model.servable {
        let architecture = &plan.model.architecture;
        if architecture.contains("Eagle3") {
            bail!(
                "{architecture} is a head that drafts for another model: serve that, and name this with --speculative-draft-model-path"
            );
        }
        bail!("the engine has no forward pass for {architecture}; `archway plan` can still plan it");
    }
    Ok(plan)
}

/// What to do where memory or threads that the plan counted on are not there.
fn with_advice(error: Error) -> Error {
    let helps = match error.downcast_ref::<StartError>() {
        Some(StartError::Model { error: ModelError::Backend(BackendError::Memory { .. }), .. }) => {
            "lower --max-total-tokens or --max-num-batched-tokens, use a smaller or quantised model, or free memory where the model runs"
        }
        Some(
            StartError::Thread(_)
            | StartError::Model { error: ModelError::Backend(BackendError::Device { operation: THREADS, .. }), .. },
        ) => "allow more processes (`ulimit -u`), or on a CPU lower --threads",
        _ => return error,
    };
    anyhow!("{error}; {helps}")
}

impl Planned {
    /// Loads the weights and starts the engine.
    pub fn load(mut self) -> Result<Service> {
        let template = self.model.chat_template.take().map(TemplatePool::start).transpose()?;
        let counters = Arc::new(CallCounters::default());
        let executor = loop {
            match self.executor(&counters) {
                Ok(executor) => break executor,
                Err(error) => match error.downcast_ref::<SelfTestFailure>() {
                    Some(failure) => self.plan_around(failure)?,
                    None => return Err(error),
                },
            }
        };
        let histograms = Arc::new(Histograms::default());
        let text: Arc<dyn TextPipeline> = match &self.model.tokenizer {
            Some(tokenizer) => Arc::new(TokenizerText(Arc::clone(tokenizer))),
            None => Arc::new(NoText),
        };
        let engine = Engine::start(Box::new(executor), text, Arc::clone(&histograms) as _, self.engine_config())?;
        let codec =
            ModelCodec { tokenizer: self.model.tokenizer.clone(), template, vocabulary: self.capacity.vocabulary };
        Ok(Service {
            model: self.card(),
            backend: Arc::new(engine.clone()),
            codec: Arc::new(codec),
            plan: Arc::new(ServedPlan::new(self.plan, counters, engine)),
            histograms,
            defaults: self.model.generation,
        })
    }

    /// Makes a plan without an algorithm that does not work here. Errors: there is none.
    fn plan_around(&mut self, failure: &SelfTestFailure) -> Result<()> {
        eprintln!("note: {failure}; the plan goes around it");
        tracing::warn!(algorithm = failure.algorithm, "{}", failure.message);
        ensure!(self.devices.strike(&failure.algorithm), "{failure}, and there is nothing in its place");
        self.request.machine = self.devices.machine(&self.options);
        self.plan = plan(&self.request).with_context(|| failure.to_string())?;
        ensure!(
            !self.plan.collectives().uses(&failure.algorithm),
            "{failure}, and there is nothing in its place:\n\n{}",
            self.plan
        );
        let sizes = (self.wanted.context, self.devices.kind().sizes());
        self.capacity = capacity::of(&self.options, &mut self.plan, &self.wanted.config, sizes)?;
        eprintln!("{}", self.plan);
        Ok(())
    }

    fn executor(&self, counters: &Arc<CallCounters>) -> Result<RanksExecutor> {
        let ranks = self.plan.tensor_parallel;
        let deadline = Duration::from_secs(self.options.step_timeout.unwrap_or(120));
        let config = RanksConfig {
            model: Arc::new(self.wanted.config.clone()),
            weights: Arc::clone(&self.model.source),
            capacity: self.capacity,
            logit_rows: self.devices.kind().sizes().logit_rows,
            plan: Arc::new(self.plan.collectives()),
            counters: Arc::clone(counters),
            step_deadline: deadline,
            speculation: self.speculation.clone(),
        };
        let bar = progress::bar((self.wanted.config.layers * ranks) as u64, "loading layers");
        let shown = bar.clone();
        let executor = self.devices.start(config, &self.options, &self.plan, move |_: LoadProgress| shown.inc(1));
        bar.finish_and_clear();
        executor.map_err(with_advice)
    }

    fn engine_config(&self) -> EngineConfig {
        let default = EngineConfig::default();
        // The server counts who may wait; the engine's own bound must not be smaller.
        let waiting = self.options.max_num_queued_reqs.unwrap_or(default.max_waiting);
        EngineConfig {
            end_tokens: self.model.config.eos_tokens.clone().into(),
            max_waiting: waiting.saturating_add(self.capacity.slots),
            max_choices: self.options.max_outputs.unwrap_or(default.max_choices),
            speculation: self.speculation.as_ref().map(|own| PaceSettings {
                shape: own.shape,
                adaptive: self.options.speculative_adaptive.unwrap_or(true),
            }),
            prefix_cache: self.options.enable_prefix_caching.unwrap_or(default.prefix_cache),
            ..default
        }
    }

    fn card(&self) -> ModelCard {
        let path = self.wanted.path.display().to_string();
        ModelCard {
            names: served_names(&self.options, &self.wanted.path),
            tokenizer_path: self.options.tokenizer.clone().unwrap_or_else(|| path.clone()),
            path,
            context: self.capacity.context,
            slots: self.capacity.slots,
            pages: self.capacity.pages,
            page_size: self.capacity.page_size,
            tensor_parallel: u32::try_from(self.plan.tensor_parallel).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_said_with_what_helps() {
        let start = |error: BackendError| {
            let error = StartError::Model { rank: 1, error: ModelError::Backend(error) };
            with_advice(error.into()).to_string()
        };
        let said = start(BackendError::Memory { operation: "allocate_cache", bytes: 7 });
        assert!(said.starts_with("rank 1: allocate_cache: the device has no room for 7 more bytes; lower --max-total"));
        let device = |operation| start(BackendError::Device { operation, message: "none".to_owned() });
        assert_eq!(
            device(THREADS),
            "rank 1: threads: none; allow more processes (`ulimit -u`), or on a CPU lower --threads"
        );
        assert_eq!(device("stream"), "rank 1: stream: none");
    }
}
