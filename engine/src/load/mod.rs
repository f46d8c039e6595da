//! From files to a model: configuration, weights, tokenizer and defaults of a checkpoint, whatever its layout.

mod error;
mod generation;
mod gguf;
pub(crate) mod hugging_face;
pub(crate) mod keys;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::files::{is_there, read_bounded_text, read_json};
use crate::model::ModelConfig;
use crate::tokenizer::{TemplateSource, Tokenizer};
use crate::weights::{DummyWeights, GgufWeights, OpenFile, SafetensorsWeights, WeightSource, read_file};

pub use error::{ConfigError, LoadError};
pub use generation::GenerationDefaults;
pub use gguf::read_gguf_config;
pub use hugging_face::parse_config;
pub use text::read_chat_template;

use text::Text;

/// Which weights to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadFormat {
    /// GGUF for a `.gguf` file, safetensors for a folder with a `config.json`.
    #[default]
    Auto,
    Safetensors,
    Gguf,
    /// Random weights from the configuration alone.
    Dummy,
}

/// How to open a model.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub format: LoadFormat,
    /// How weight files are opened: [`read_file`], or a memory map.
    pub open: OpenFile,
    /// Seed of random weights.
    pub seed: u64,
    /// A chat template that replaces the checkpoint's: a file, or the text itself.
    pub chat_template: Option<String>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { format: LoadFormat::Auto, open: read_file, seed: 0, chat_template: None }
    }
}

/// An opened model. Weights are still in their file.
pub struct Model {
    pub config: ModelConfig,
    pub source: Arc<dyn WeightSource>,
    /// `None` if the checkpoint has none: the model can be served by token ids alone.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Not compiled: it is a program of the checkpoint's, which a server compiles and runs in a process of its own.
    pub chat_template: Option<TemplateSource>,
    pub generation: GenerationDefaults,
}

/// Where a model lies.
enum Place {
    Gguf(PathBuf),
    /// A `config.json` and its folder.
    Folder {
        config: PathBuf,
        folder: PathBuf,
    },
    /// A configuration without anything beside it that belongs to it.
    Config(PathBuf),
}

/// Reads a model's configuration alone, where weights of this format would have it: a folder, a `config.json` or a `.gguf`
/// file.
pub fn read_config(path: &Path, format: LoadFormat, open: OpenFile) -> Result<ModelConfig, LoadError> {
    match find(path, format)? {
        Place::Gguf(file) => read_gguf_config(&GgufWeights::open(&file, open)?),
        Place::Folder { config, .. } | Place::Config(config) => read_config_file(&config),
    }
}

/// Opens a model: a folder in Hugging Face layout, a `.gguf` file, or a `config.json` for random weights.
pub fn open_model(path: &Path, options: &OpenOptions) -> Result<Model, LoadError> {
    match find(path, options.format)? {
        Place::Gguf(file) => open_gguf(&file, options),
        Place::Folder { config, folder } => open_folder(&config, &folder, options),
        Place::Config(config) if options.format == LoadFormat::Dummy => open_dummy(&config, options),
        Place::Config(config) => Err(LoadError::File {
            path: config.display().to_string(),
            message: "is a configuration without weights; give its folder, or `--load-format dummy` for random weights"
                .to_owned(),
        }),
    }
}

fn open_gguf(file: &Path, options: &OpenOptions) -> Result<Model, LoadError> {
    let weights = GgufWeights::open(file, options.open)?;
    let config = read_gguf_config(&weights)?;
    let text = text::from_gguf(&weights, options)?;
    Ok(model(config, Some(Arc::new(weights)), text, GenerationDefaults::default(), options))
}

fn open_folder(config: &Path, folder: &Path, options: &OpenOptions) -> Result<Model, LoadError> {
    let mut config = read_config_file(config)?;
    let generation = generation::read(folder, config.vocabulary)?;
    for token in &generation.eos_tokens {
        if !config.eos_tokens.contains(token) {
            config.eos_tokens.push(*token);
        }
    }
    let text = text::from_folder(folder, options)?;
    let source: Option<Arc<dyn WeightSource>> = match options.format {
        LoadFormat::Dummy => None,
        _ => Some(Arc::new(SafetensorsWeights::open_folder(folder, options.open)?)),
    };
    Ok(model(config, source, text, generation, options))
}

fn open_dummy(config: &Path, options: &OpenOptions) -> Result<Model, LoadError> {
    let config = read_config_file(config)?;
    Ok(model(config, None, text::from_options(options)?, GenerationDefaults::default(), options))
}

/// Puts a model together; random weights if they are asked for.
fn model(
    config: ModelConfig,
    source: Option<Arc<dyn WeightSource>>,
    text: Text,
    generation: GenerationDefaults,
    options: &OpenOptions,
) -> Model {
    let source = source.filter(|_| options.format != LoadFormat::Dummy);
    let source = source.unwrap_or_else(|| Arc::new(DummyWeights::new(options.seed, &config.dtype)));
    Model { config, source, tokenizer: text.tokenizer, chat_template: text.chat_template, generation }
}

fn read_config_file(path: &Path) -> Result<ModelConfig, LoadError> {
    parse_config(&path.display().to_string(), &read_text(path)?)
}

/// Looks at what `path` names.
fn find(path: &Path, format: LoadFormat) -> Result<Place, LoadError> {
    let fail = |message: String| Err(LoadError::File { path: path.display().to_string(), message });
    let extension = |path: &Path| path.extension().and_then(|extension| extension.to_str()).map(str::to_lowercase);
    if path.is_dir() {
        return find_in_folder(path, format);
    }
    if !is_there(path) {
        return fail("does not exist; give a folder in Hugging Face layout, a .gguf file or a config.json".to_owned());
    }
    match (extension(path).as_deref(), format) {
        (Some("gguf"), LoadFormat::Safetensors) => {
            fail("is a GGUF file, but the load format is safetensors".to_owned())
        }
        (Some("gguf"), _) => Ok(Place::Gguf(path.to_owned())),
        (Some("json"), _) => Ok(Place::Config(path.to_owned())),
        (Some("safetensors"), _) => {
            fail("is a file of weights; give the folder that holds its config.json too".to_owned())
        }
        _ => fail("is not a model; give a folder in Hugging Face layout, a .gguf file or a config.json".to_owned()),
    }
}

/// A folder is Hugging Face's if it has a `config.json`; otherwise its only GGUF file is meant.
fn find_in_folder(folder: &Path, format: LoadFormat) -> Result<Place, LoadError> {
    let config = folder.join("config.json");
    if is_there(&config) && format != LoadFormat::Gguf {
        return Ok(Place::Folder { config, folder: folder.to_owned() });
    }
    let path = folder.display().to_string();
    let entries = std::fs::read_dir(folder).map_err(|cause| LoadError::Read { path: path.clone(), cause })?;
    let files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut found: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "gguf")).collect();
    match (found.pop(), found.len()) {
        (Some(only), 0) if format != LoadFormat::Safetensors => Ok(Place::Gguf(only)),
        (Some(_), more) if more > 0 => {
            Err(LoadError::File { path, message: format!("has {} GGUF files; name the one to load", more + 1) })
        }
        _ => Err(LoadError::File { path, message: "has no config.json and no .gguf file".to_owned() }),
    }
}

pub(crate) fn read_text(path: &Path) -> Result<String, LoadError> {
    read_bounded_text(path).map_err(|cause| LoadError::Read { path: path.display().to_string(), cause })
}

/// Parses a file that must hold one JSON object, without repeated keys.
pub(crate) fn json_object(path: &str, text: &str) -> Result<Map<String, Value>, LoadError> {
    let fail = |message| LoadError::File { path: path.to_owned(), message };
    match read_json(text.as_bytes()) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(fail("must hold a JSON object".to_owned())),
        Err(error) => Err(fail(format!("is not valid JSON: {error}"))),
    }
}
