//! Chat templates: messages to the text that a model was trained on.
//!
//! Checkpoints bring Jinja templates written for Python's jinja2 as transformers sets it up (`trim_blocks`,
//! `lstrip_blocks`, loop controls, `raise_exception`, `strftime_now`, its own `tojson`). The same is set up here.

mod clock;
mod functions;
mod python;
mod tags;

use minijinja::value::Value;
use minijinja::{Environment, Error};
use serde_json::{Map, Value as Json};

use functions::Raised;

/// Instructions that one rendering may take: far more than any conversation needs, and an end to a template that loops.
const FUEL: u64 = 10_000_000;

/// The template for requests with tools, where a checkpoint has one of its own.
const TOOL_USE: &str = "tool_use";
const DEFAULT: &str = "default";

/// Why a conversation has no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template is no template.
    #[error("{path}: chat template `{name}`: {message}")]
    Source { path: String, name: String, message: String },
    /// The template called `raise_exception`: the conversation is not one that the model understands.
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// The template failed on this conversation.
    #[error("the chat template fails on the conversation: {0}")]
    Failed(String),
}

/// What a template is rendered with.
#[derive(Clone, Copy, Debug)]
pub struct ChatInput<'a> {
    /// A list of objects with `role` and `content`.
    pub messages: &'a Json,
    /// A list of tools in OpenAI's form.
    pub tools: Option<&'a Json>,
    /// End with the header of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables of the template (`enable_thinking`, ...); they replace those above.
    pub variables: &'a Map<String, Json>,
}

/// The compiled templates of a checkpoint.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Variables that are the checkpoint's: `bos_token` and `eos_token`, where it has them.
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// Compiles named templates, of which one is "default"; `path` is for messages.
    pub fn new(
        path: &str,
        templates: &[(String, String)],
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<Self, TemplateError> {
        let fail = |name: &str, message: String| TemplateError::Source {
            path: path.to_owned(),
            name: name.to_owned(),
            message,
        };
        let mut environment = Environment::new();
        functions::install(&mut environment);
        environment.set_fuel(Some(FUEL));
        for (name, source) in templates {
            let source = tags::without_generation(source);
            environment.add_template_owned(name.clone(), source).map_err(|error| fail(name, describe(&error)))?;
        }
        if environment.get_template(DEFAULT).is_err() {
            return Err(fail(DEFAULT, "is missing".to_owned()));
        }
        let tokens = [("bos_token", bos_token), ("eos_token", eos_token)];
        let tokens = tokens.into_iter().filter_map(|(name, text)| Some((name, text?.to_owned()))).collect();
        Ok(Self { environment, tokens })
    }

    /// The text of a conversation.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let tools = input.tools.filter(|tools| tools.as_array().is_some_and(|list| !list.is_empty()));
        let template = tools.and_then(|_| self.environment.get_template(TOOL_USE).ok());
        let template =
            template.map_or_else(|| self.environment.get_template(DEFAULT), Ok).map_err(|error| failure(&error))?;
        let mut context: Vec<(&str, Value)> = vec![
            ("messages", Value::from_serialize(input.messages)),
            ("tools", Value::from_serialize(tools)),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
        ];
        context.extend(self.tokens.iter().map(|(name, text)| (*name, Value::from(text.as_str()))));
        context.extend(input.variables.iter().map(|(name, value)| (name.as_str(), Value::from_serialize(value))));
        template.render(context.into_iter().collect::<Value>()).map_err(|error| failure(&error))
    }
}

/// A refusal by the template itself, or any other failure.
fn failure(error: &Error) -> TemplateError {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TemplateError::Refused(message.clone());
        }
        source = cause.source();
    }
    TemplateError::Failed(describe(error))
}

/// Kind, detail and line.
fn describe(error: &Error) -> String {
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line})"));
    match error.detail() {
        Some(detail) => format!("{}: {detail}{line}", error.kind()),
        None => format!("{}{line}", error.kind()),
    }
}
