//! A model on the CPU backend.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use engine::collective::CallCounters;
use engine::executor::{Capacity, LoadProgress, RanksConfig, RanksExecutor, Speculation};
use engine::load::{LoadFormat, Model, OpenOptions, open_model, read_config};
use engine::model::ModelConfig;
use engine::plan::{Machine, Plan, PlanRequest, PlanVerdict};
use engine::runner::{Engine, EngineConfig, NoText, TextPipeline, TokenizerText};
use engine_cpu::kernels::Precision;
use engine_cpu::{CpuOptions, CpuRanks, map_file};
use engine_server::metrics::Histograms;
use engine_server::service::{ModelCard, Service};

use super::codec::ModelCodec;
use super::planning::choices;
use super::report::ServedPlan;
use super::{host, narrow, speculation, text};
use crate::progress;
use crate::settings::{CpuPrecision, LoadFormat as FormatWord, NumberType, Options};

const PAGE_SIZE: u32 = 16;
/// Rows of one step unless the user says otherwise: enough to read the weights seldom, few enough that running outputs
/// do not wait long for a prompt.
const ROWS: u32 = 512;
/// Rows whose logits are computed at once.
const LOGIT_ROWS: usize = 64;
/// The key-value cache takes no more than this unless the user says otherwise: the machine has other work.
const CACHE_BYTES: u64 = 4 << 30;

/// A model with a plan that is not refused.
pub struct Planned {
    pub plan: Plan,
    path: PathBuf,
    config: ModelConfig,
    capacity: Capacity,
    speculation: Option<Speculation>,
    options: Options,
}

/// Reads the model's shape and plans.
pub fn prepare(model: &str, options: &Options) -> Result<Planned> {
    if let Some(word @ (NumberType::Float16 | NumberType::Bfloat16)) = options.dtype {
        bail!("--dtype {word:?}: the CPU backend computes in float32; use --dtype auto or float32");
    }
    let path = PathBuf::from(model);
    let config = read_config(&path, map_file)?;
    let context = options.max_model_len.map_or(config.context as u64, |count| count.0);
    ensure!(context > 0, "--max-model-len must be at least 1");
    ensure!(
        context <= config.context as u64,
        "--max-model-len {context} is more than the {} tokens that the model was made for",
        config.context
    );
    let speculation = speculation::open(options, &config)?;
    let name = served_names(options, &path).into_iter().next().unwrap_or_default();
    let machine = Machine::Cpu(host::cpu(options.threads));
    let request = PlanRequest {
        weight_bytes: weight_bytes(&path),
        draft: speculation.as_ref().map(speculation::report),
        speculation: speculation.as_ref().map(|own| speculation::planned(own, cache_element_bytes(options))),
        ..plan_request(PlanRequest::new(name, config.clone(), machine), options)
    };
    let plan = engine::plan::build(&choices(options).apply(request))?;
    if plan.verdict == PlanVerdict::Refused {
        bail!("the plan is refused, nothing was loaded\n\n{plan}");
    }
    if !plan.model.servable {
        bail!("the engine has no forward pass for {}; `archway plan` can still plan it", plan.model.architecture);
    }
    let capacity = capacity(options, &plan, &config, narrow("max-model-len", context)?)?;
    Ok(Planned { plan, path, config, capacity, speculation, options: options.clone() })
}

/// Sizes of the CPU backend: activations in f32, keys and values in f16 where the products are rounded too.
pub fn plan_request(request: PlanRequest, options: &Options) -> PlanRequest {
    PlanRequest { max_rows: ROWS as usize, activation_bytes: 4, cache_bytes: cache_element_bytes(options), ..request }
}

/// Bytes of an element of the CPU backend's key-value cache.
pub fn cache_element_bytes(options: &Options) -> usize {
    match precision(options) {
        Precision::Fast => 2,
        Precision::Exact => 4,
    }
}

fn precision(options: &Options) -> Precision {
    match options.cpu_precision {
        None | Some(CpuPrecision::Fast) => Precision::Fast,
        Some(CpuPrecision::Exact) => Precision::Exact,
    }
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

fn capacity(options: &Options, plan: &Plan, config: &ModelConfig, context: u32) -> Result<Capacity> {
    let slots = options.max_num_seqs.unwrap_or(64).max(1);
    let rows = options.max_num_batched_tokens.map_or(Ok(ROWS), |count| narrow("max-num-batched-tokens", count.0))?;
    let page_bytes = (plan.memory.cache_bytes_per_token * u64::from(PAGE_SIZE)).max(1);
    let per_sequence = u64::from(context.div_ceil(PAGE_SIZE));
    let pages = match (options.max_total_tokens, options.kv_cache_memory_bytes) {
        (Some(_), Some(_)) => bail!("give --max-total-tokens or --kv-cache-memory-bytes, not both"),
        (Some(tokens), None) => tokens.0 / u64::from(PAGE_SIZE),
        (None, Some(bytes)) => bytes.0 / page_bytes,
        (None, None) => {
            let wanted = (u64::from(slots) * per_sequence).min(CACHE_BYTES / page_bytes);
            wanted.max(per_sequence).min(plan.memory.pages)
        }
    };
    ensure!(pages > 0, "the key-value cache holds no page of {PAGE_SIZE} tokens; give it more memory");
    ensure!(
        pages <= plan.memory.pages,
        "a key-value cache of {pages} pages does not fit: there is memory for {}",
        plan.memory.pages
    );
    Ok(Capacity {
        pages: narrow("max-total-tokens", pages)?,
        page_size: PAGE_SIZE,
        slots,
        rows,
        context,
        vocabulary: u32::try_from(config.vocabulary).context("the vocabulary is too large")?,
    })
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
    pub fn load(self) -> Result<Service> {
        let mut model = open_model(&self.path, &self.open_options())?;
        if let Some(path) = &self.options.tokenizer {
            model.tokenizer = Some(text::tokenizer(path)?);
        }
        let counters = Arc::new(CallCounters::default());
        let executor = self.executor(&model, &counters)?;
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
            backend: Arc::new(engine),
            codec: Arc::new(codec),
            plan: Arc::new(ServedPlan::new(self.plan, counters)),
            histograms,
            defaults: model.generation,
        })
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
        let precision = precision(&self.options);
        let threads = self.options.threads.map(|threads| (threads as usize / ranks).max(1));
        let factory = CpuRanks::new(CpuOptions { world_size: ranks, threads, precision, deadline });
        let config = RanksConfig {
            model: Arc::new(self.config.clone()),
            weights: Arc::clone(&model.source),
            capacity: self.capacity,
            logit_rows: LOGIT_ROWS,
            plan: Arc::new(self.plan.collectives()),
            counters: Arc::clone(counters),
            step_deadline: deadline,
            speculation: self.speculation.clone(),
        };
        let bar = progress::bar((self.config.layers * ranks) as u64, "loading layers");
        let shown = bar.clone();
        let executor = RanksExecutor::start(factory, config, move |_: LoadProgress| shown.inc(1));
        bar.finish_and_clear();
        Ok(executor?)
    }

    fn engine_config(&self, model: &Model) -> EngineConfig {
        let default = EngineConfig::default();
        // The server counts who may wait; the engine's own bound must not be smaller.
        let waiting = self.options.max_num_queued_reqs.unwrap_or(default.max_waiting);
        EngineConfig {
            end_tokens: model.config.eos_tokens.clone().into(),
            max_waiting: waiting.saturating_add(self.capacity.slots),
            max_choices: self.options.max_outputs.unwrap_or(default.max_choices),
            verify_tokens: self.speculation.as_ref().map_or(0, |own| own.shape.verify_tokens as u32),
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
