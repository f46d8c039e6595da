//! From settings to the request of a plan: what a start and `archway plan` ask alike, and refuse alike, before weights load.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use engine::executor::Speculation;
use engine::load::{LoadFormat, OpenOptions, read_chat_template, read_config};
use engine::model::ModelConfig;
use engine::plan::tuning::TuningReport;
use engine::plan::{Machine, PlanRequest};
use engine::tokenizer::Tokenizer;
use engine_cpu::map_file;

use super::kind::Kind;
use super::planning::choices;
use super::{narrow, speculation, text};
use crate::rendering::TemplatePool;
use crate::settings::{LoadFormat as FormatWord, Options};

/// A model and what is asked of it; its configuration is read, its weights are not.
pub struct Wanted {
    pub path: PathBuf,
    pub config: ModelConfig,
    pub context: u32,
    pub tokenizer: Option<Arc<Tokenizer>>,
}

impl Wanted {
    /// Errors: no such model, a longer context than it was made for, a tokenizer or a chat template that is none.
    pub fn read(model: &str, options: &Options) -> Result<Self> {
        let path = PathBuf::from(model);
        let config = read_config(&path, format(options), map_file)?;
        let context = options.max_model_len.map_or(config.context as u64, |count| count.0);
        ensure!(
            context <= config.context as u64,
            "--max-model-len {context} is more than the {} tokens that the model was made for",
            config.context
        );
        let tokenizer = options.tokenizer.as_deref().map(text::tokenizer).transpose()?;
        if let Some(template) = &options.chat_template {
            TemplatePool::check(read_chat_template(template)?)?;
        }
        Ok(Self { path, config, context: narrow("max-model-len", context)?, tokenizer })
    }

    /// The draft head that is asked for, as the devices take it. Errors: one that does not fit the model or the devices.
    pub fn draft(&self, kind: Kind, options: &Options) -> Result<Option<Speculation>> {
        let Some(opened) = speculation::open(options, &self.config)? else { return Ok(None) };
        kind.check_draft(&opened.head.config)?;
        Ok(Some(if kind.drafts_in_blocks(options) { speculation::in_blocks(opened) } else { opened }))
    }

    /// What a plan is made for. Errors: a number type or a file that the devices have no use for.
    pub fn request(
        &self,
        (kind, machine, tuning): (Kind, Machine, Option<TuningReport>),
        draft: Option<&Speculation>,
        options: &Options,
    ) -> Result<PlanRequest> {
        kind.check_number_type(options)?;
        let name = served_names(options, &self.path).into_iter().next().unwrap_or_default();
        let request = PlanRequest {
            weight_bytes: weight_bytes(&self.path),
            draft: draft.map(speculation::report),
            speculation: draft.map(|own| speculation::planned(own, kind.cache_element_bytes(options))),
            tuning,
            ..PlanRequest::new(name, self.config.clone(), machine)
        };
        Ok(choices(options).apply(kind.plan_request(request, options)?))
    }
}

fn format(options: &Options) -> LoadFormat {
    match options.load_format {
        None | Some(FormatWord::Auto) => LoadFormat::Auto,
        Some(FormatWord::Safetensors) => LoadFormat::Safetensors,
        Some(FormatWord::Gguf) => LoadFormat::Gguf,
        Some(FormatWord::Dummy) => LoadFormat::Dummy,
    }
}

/// How the model is opened when its weights load.
pub fn open_options(options: &Options) -> OpenOptions {
    OpenOptions {
        format: format(options),
        open: map_file,
        seed: options.seed.unwrap_or(0),
        chat_template: options.chat_template.clone(),
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

/// The model's names in requests, the first one for answers and plans.
pub fn served_names(options: &Options, path: &Path) -> Vec<String> {
    // A folder's name may hold dots that do not begin an extension.
    let own = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let own = || own.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    options.served_model_name.clone().unwrap_or_else(|| vec![own()])
}
