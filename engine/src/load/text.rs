//! The tokenizer and the chat template of a checkpoint.

use std::path::Path;
use std::sync::Arc;

use super::{LoadError, OpenOptions, json_object, read_text};
use crate::files::{LARGEST_TEXT, is_there, read_bounded};
use crate::tokenizer::{TemplateSource, Tokenizer, TokenizerSettings};
use crate::weights::GgufWeights;

/// What turns conversations into tokens and back. Both may be missing: a model can be served by token ids.
pub(super) struct Text {
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub chat_template: Option<TemplateSource>,
}

/// Named templates and the file that they come from.
struct Templates {
    path: String,
    named: Vec<(String, String)>,
}

impl Templates {
    fn source(self, bos_token: Option<&str>, eos_token: Option<&str>) -> TemplateSource {
        let [bos_token, eos_token] = [bos_token, eos_token].map(|token| token.map(str::to_owned));
        TemplateSource { path: self.path, templates: self.named, bos_token, eos_token }
    }
}

/// Reads `tokenizer.json`, `tokenizer_config.json` and the template files of a folder.
pub(super) fn from_folder(folder: &Path, options: &OpenOptions) -> Result<Text, LoadError> {
    let settings_path = folder.join("tokenizer_config.json");
    let settings = match is_there(&settings_path) {
        true => TokenizerSettings::parse(&settings_path.display().to_string(), &read_text(&settings_path)?)?,
        false => TokenizerSettings::default(),
    };
    let path = folder.join("tokenizer.json");
    let tokenizer = match is_there(&path) {
        true => {
            let name = path.display().to_string();
            let json =
                read_bounded(&path, LARGEST_TEXT).map_err(|cause| LoadError::Read { path: name.clone(), cause })?;
            Some(Arc::new(Tokenizer::from_json(&name, &json, &settings)?))
        }
        false => None,
    };
    let templates = match asked_for(options.chat_template.as_deref())? {
        Some(templates) => Some(templates),
        None => of_folder(folder, &settings)?,
    };
    let [bos, eos] = [&settings.bos_token, &settings.eos_token].map(Option::as_deref);
    let chat_template = templates.map(|templates| templates.source(bos, eos));
    Ok(Text { tokenizer, chat_template })
}

/// Reads the tokenizer and the template inside a GGUF file.
pub(super) fn from_gguf(weights: &GgufWeights, options: &OpenOptions) -> Result<Text, LoadError> {
    const KEY: &str = "tokenizer.chat_template";
    let tokenizer = Tokenizer::from_gguf(weights)?.map(Arc::new);
    let mut named = Vec::new();
    for (name, key) in [("default", KEY.to_owned()), ("tool_use", format!("{KEY}.tool_use"))] {
        if let Some(text) = weights.text(&key)? {
            named.push((name.to_owned(), text.to_owned()));
        }
    }
    let own = (!named.is_empty()).then(|| Templates { path: weights.path().to_owned(), named });
    let text_of = |id: Option<u32>| {
        let bytes = tokenizer.as_ref()?.token_bytes(id?);
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let bos = text_of(tokenizer.as_ref().and_then(|tokenizer| tokenizer.bos_token()));
    let eos = text_of(tokenizer.as_ref().and_then(|tokenizer| tokenizer.eos_token()));
    let templates = asked_for(options.chat_template.as_deref())?.or(own);
    let chat_template = templates.map(|templates| templates.source(bos.as_deref(), eos.as_deref()));
    Ok(Text { tokenizer, chat_template })
}

/// What is asked for where nothing lies beside the configuration: a template may be.
pub(super) fn from_options(options: &OpenOptions) -> Result<Text, LoadError> {
    let templates = asked_for(options.chat_template.as_deref())?;
    Ok(Text { tokenizer: None, chat_template: templates.map(|templates| templates.source(None, None)) })
}

/// The chat template that is asked for, not compiled yet. Errors: it is neither a file nor a template, or its file cannot be
/// read.
pub fn read_chat_template(argument: &str) -> Result<TemplateSource, LoadError> {
    Ok(named(argument)?.source(None, None))
}

/// The template of the command line: a file, or the text itself.
fn asked_for(argument: Option<&str>) -> Result<Option<Templates>, LoadError> {
    argument.map(named).transpose()
}

fn named(argument: &str) -> Result<Templates, LoadError> {
    let path = Path::new(argument);
    let (path, text) = if is_there(path) {
        (argument.to_owned(), read_text(path)?)
    } else if argument.contains("{{") || argument.contains("{%") {
        ("--chat-template".to_owned(), argument.to_owned())
    } else {
        let message = format!("`{argument}` is neither a file nor the text of a template");
        return Err(LoadError::File { path: "--chat-template".to_owned(), message });
    };
    Ok(Templates { path, named: vec![("default".to_owned(), text)] })
}

/// A template file outranks the key of `tokenizer_config.json`, as in transformers.
fn of_folder(folder: &Path, settings: &TokenizerSettings) -> Result<Option<Templates>, LoadError> {
    let own = |path: &Path, text: String| Templates {
        path: path.display().to_string(),
        named: vec![("default".to_owned(), text)],
    };
    let path = folder.join("chat_template.jinja");
    if is_there(&path) {
        return Ok(Some(own(&path, read_text(&path)?)));
    }
    if !settings.chat_templates.is_empty() {
        let path = folder.join("tokenizer_config.json").display().to_string();
        return Ok(Some(Templates { path, named: settings.chat_templates.clone() }));
    }
    let path = folder.join("chat_template.json");
    if !is_there(&path) {
        return Ok(None);
    }
    let name = path.display().to_string();
    let map = json_object(&name, &read_text(&path)?)?;
    match map.get("chat_template").and_then(|value| value.as_str()) {
        Some(text) => Ok(Some(own(&path, text.to_owned()))),
        None => Err(LoadError::File { path: name, message: "key `chat_template` must be a string".to_owned() }),
    }
}
