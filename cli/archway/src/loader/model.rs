//! A model on the devices that were chosen for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use engine::collective::CallCounters;
use engine::executor::{Capacity, LoadProgress, RanksConfig, RanksExecutor, Speculation};
use engine::load::{LoadFormat, Model, OpenOptions, open_model, read_config};
use engine::model::ModelConfig;
use engine::plan::{Plan, PlanRequest, PlanVerdict};
use engine::runner::{Engine, EngineConfig, NoText, TextPipeline, TokenizerText};
use engine::spec::PaceSettings;
use engine_cpu::map_file;
use engine_gpu::collective::SelfTestFailure;
use engine_server::metrics::Histograms;
use engine_server::service::{ModelCard, Service};

use super::capacity;
use super::codec::ModelCodec;
use super::devices::Devices;
use super::planning::choices;
use super::report::ServedPlan;
use super::{narrow, speculation, text};
use crate::progress;
use crate::settings::{LoadFormat as FormatWord, Options};

/// A model with a plan that is not refused.
pub struct Planned {
    pub plan: Plan,
    /// What the plan was made for, to make another where a part of it fails its self-test.
    request: PlanRequest,
    path: PathBuf,
    config: ModelConfig,
    capacity: Capacity,
    speculation: Option<Speculation>,
    options: Options,
    devices: Devices,
}

/// Reads the model's shape and plans.
pub fn prepare(model: &str, options: &Options) -> Result<Planned> {
    let path = PathBuf::from(model);
    let config = read_config(&path, map_file)?;
    let devices = Devices::choose(options, &config)?;
    devices.check_number_type(options)?;
    let context = options.max_model_len.map_or(config.context as u64, |count| count.0);
    ensure!(
        context <= config.context as u64,
        "--max-model-len {context} is more than the {} tokens that the model was made for",
        config.context
    );
    let speculation = speculation::open(options, &config)?;
    devices.check_draft(speculation.as_ref().map(|own| &own.head.config))?;
    let speculation = match devices.drafts_in_blocks(options) {
        true => speculation.map(speculation::in_blocks),
        false => speculation,
    };
    let name = served_names(options, &path).into_iter().next().unwrap_or_default();
    let request = PlanRequest::new(name, config.clone(), devices.machine(options));
    let request = PlanRequest {
        weight_bytes: weight_bytes(&path),
        draft: speculation.as_ref().map(speculation::report),
        speculation: speculation.as_ref().map(|own| speculation::planned(own, devices.cache_element_bytes(options))),
        ..devices.plan_request(request, options)?
    };
    let request = choices(options).apply(request);
    let plan = plan(&request)?;
    let context = narrow("max-model-len", context)?;
    let capacity = capacity::of(options, &plan, &config, (context, devices.sizes()))?;
    Ok(Planned { plan, request, path, config, capacity, speculation, options: options.clone(), devices })
}

/// The plan of a request. Errors: it is refused, or nothing can compute the model.
fn plan(request: &PlanRequest) -> Result<Plan> {
    let plan = engine::plan::build(request)?;
    if plan.verdict == PlanVerdict::Refused {
        bail!("the plan is refused, nothing was loaded\n\n{plan}");
    }
    if !plan.model.servable {
        bail!("the engine has no forward pass for {}; `archway plan` can still plan it", plan.model.architecture);
    }
    Ok(plan)
}

/// Bytes of the weight files; none for a configuration alone.
fn weight_bytes(path: &Path) -> Option<u64> {
    let is_weights = |path: &Path| path.extension().is_some_and(|end| end == "gguf" || end == "safetensors");
    let size = |path: &Path| path.metadata().map(|metadata| metadata.len()).ok();
    if path.is_dir() {
        let files = path.read_dir().ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let total: u64 = files.filter(|file| is_weights(file)).filter_map(|file| size(&file)).sum();
        return Some(total).filter(|&total| total > 0);
    }
    size(path).filter(|_| is_weights(path))
}

fn served_names(options: &Options, path: &Path) -> Vec<String> {
    let last =
        || path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned());
    // A folder's name may hold dots that are no extension.
    let own = if path.is_dir() {
        path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
    } else {
        last()
    };
    options.served_model_name.clone().unwrap_or_else(|| vec![own])
}

impl Planned {
    /// Loads the weights and starts the engine.
    pub fn load(mut self) -> Result<Service> {
        let mut model = open_model(&self.path, &self.open_options())?;
        if let Some(path) = &self.options.tokenizer {
            model.tokenizer = Some(text::tokenizer(path)?);
        }
        let counters = Arc::new(CallCounters::default());
        let executor = loop {
            match self.executor(&model, &counters) {
                Ok(executor) => break executor,
                Err(error) => match error.downcast_ref::<SelfTestFailure>() {
                    Some(failure) => self.plan_around(failure)?,
                    None => return Err(error),
                },
            }
        };
        let histograms = Arc::new(Histograms::default());
        let text: Arc<dyn TextPipeline> = match &model.tokenizer {
            Some(tokenizer) => Arc::new(TokenizerText(Arc::clone(tokenizer))),
            None => Arc::new(NoText),
        };
        let engine = Engine::start(Box::new(executor), text, Arc::clone(&histograms) as _, self.engine_config(&model))?;
        let codec = ModelCodec {
            tokenizer: model.tokenizer,
            template: model.chat_template,
            vocabulary: self.capacity.vocabulary,
        };
        Ok(Service {
            model: self.card(),
            backend: Arc::new(engine.clone()),
            codec: Arc::new(codec),
            plan: Arc::new(ServedPlan::new(self.plan, counters, engine)),
            histograms,
            defaults: model.generation,
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
        let sizes = (self.capacity.context, self.devices.sizes());
        self.capacity = capacity::of(&self.options, &self.plan, &self.config, sizes)?;
        eprintln!("{}", self.plan);
        Ok(())
    }

    fn open_options(&self) -> OpenOptions {
        let format = match self.options.load_format {
            None | Some(FormatWord::Auto) => LoadFormat::Auto,
            Some(FormatWord::Safetensors) => LoadFormat::Safetensors,
            Some(FormatWord::Gguf) => LoadFormat::Gguf,
            Some(FormatWord::Dummy) => LoadFormat::Dummy,
        };
        OpenOptions {
            format,
            open: map_file,
            seed: self.options.seed.unwrap_or(0),
            chat_template: self.options.chat_template.clone(),
        }
    }

    fn executor(&self, model: &Model, counters: &Arc<CallCounters>) -> Result<RanksExecutor> {
        let ranks = self.plan.tensor_parallel;
        let deadline = Duration::from_secs(self.options.step_timeout.unwrap_or(120));
        let config = RanksConfig {
            model: Arc::new(self.config.clone()),
            weights: Arc::clone(&model.source),
            capacity: self.capacity,
            logit_rows: self.devices.sizes().logit_rows,
            plan: Arc::new(self.plan.collectives()),
            counters: Arc::clone(counters),
            step_deadline: deadline,
            speculation: self.speculation.clone(),
        };
        let bar = progress::bar((self.config.layers * ranks) as u64, "loading layers");
        let shown = bar.clone();
        let executor = self.devices.start(config, &self.options, &self.plan, move |_: LoadProgress| shown.inc(1));
        bar.finish_and_clear();
        executor
    }

    fn engine_config(&self, model: &Model) -> EngineConfig {
        let default = EngineConfig::default();
        // The server counts who may wait; the engine's own bound must not be smaller.
        let waiting = self.options.max_num_queued_reqs.unwrap_or(default.max_waiting);
        EngineConfig {
            end_tokens: model.config.eos_tokens.clone().into(),
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
        let path = self.path.display().to_string();
        ModelCard {
            names: served_names(&self.options, &self.path),
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
