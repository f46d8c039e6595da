//! Chat templates: messages to the text that a model was trained on.
//!
//! Checkpoints bring Jinja templates written for Python's jinja2 as transformers sets it up (`trim_blocks`,
//! `lstrip_blocks`, loop controls, `raise_exception`, `strftime_now`, its own `tojson`). The same is set up here.

mod clock;
mod functions;
mod python;
mod tags;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use functions::Raised;

/// Steps that one rendering may take: far more than any conversation needs, and an end to a template that loops or grows.
/// An instruction is a step, an item that is visited is half of one, and so are 32 bytes of text or one place of a list.
pub const MOST_STEPS: u64 = 10_000_000;

/// Bytes of the longest text of a conversation.
pub const LONGEST_TEXT: usize = 64 << 20;

/// The template for requests with tools, where a checkpoint has one of its own.
const TOOL_USE: &str = "tool_use";
const DEFAULT: &str = "default";

/// Why a conversation has no text. What a client reads names no file of the server: only [`TemplateError::Source`], which
/// ends a start, has the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TemplateError {
    /// The template cannot be compiled.
    #[error("{path}: chat template `{name}`: {message}")]
    Source { path: String, name: String, message: String },
    /// The template called `raise_exception`: the conversation is not one that the model understands.
    #[error("the chat template refuses the conversation: {0}")]
    Refused(String),
    /// The template asks for more work or memory than any conversation needs; `bound` says what it went over.
    #[error("chat template `{name}`: this conversation takes {bound}; send less")]
    Bound { name: String, bound: String },
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

/// Where the templates of a checkpoint come from: all that it takes to compile them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateSource {
    /// Of the file, for messages.
    pub path: String,
    /// Names and texts; one is "default".
    pub templates: Vec<(String, String)>,
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
}

/// The compiled templates of a checkpoint.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: TemplateSource,
}

impl ChatTemplate {
    /// Compiles named templates, of which one is "default". The engine nests with the template's own nesting, so that one
    /// of ten thousands of operators overflows a stack here: only a process with bounds ends that.
    pub fn new(source: TemplateSource) -> Result<Self, TemplateError> {
        let fail = |name: &str, message: String| TemplateError::Source {
            path: source.path.clone(),
            name: name.to_owned(),
            message,
        };
        let mut environment = Environment::new();
        functions::install(&mut environment).map_err(|error| fail(DEFAULT, describe(&error)))?;
        environment.set_fuel(Some(MOST_STEPS));
        for (name, text) in &source.templates {
            let text = tags::without_generation(text);
            environment.add_template_owned(name.clone(), text).map_err(|error| fail(name, describe(&error)))?;
        }
        if environment.get_template(DEFAULT).is_err() {
            return Err(fail(DEFAULT, "is missing".to_owned()));
        }
        Ok(Self { environment, source })
    }

    /// The text of a conversation. Errors: the template refuses it or fails on it, or it takes more than [`MOST_STEPS`] or
    /// gives more than [`LONGEST_TEXT`].
    ///
    /// The steps end every loop and all growth that the engine sees; what it does not see (lists that share their items,
    /// compared or printed by an operator) only the limits of a process end.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let tools = input.tools.filter(|tools| tools.as_array().is_some_and(|list| !list.is_empty()));
        let own = tools.and_then(|_| self.environment.get_template(TOOL_USE).ok());
        let name = if own.is_some() { TOOL_USE } else { DEFAULT };
        let template = own.map_or_else(|| self.environment.get_template(DEFAULT), Ok);
        let template = template.map_err(|error| failure(name, &error))?;
        let mut context: Vec<(&str, Value)> = vec![
            ("messages", Value::from(Serde(input.messages))),
            ("tools", Value::from(Serde(tools))),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
        ];
        let tokens = [("bos_token", &self.source.bos_token), ("eos_token", &self.source.eos_token)];
        context.extend(tokens.iter().filter_map(|(name, text)| Some((*name, Value::from(text.as_deref()?)))));
        context.extend(input.variables.iter().map(|(name, value)| (name.as_str(), Value::from(Serde(value)))));
        let text = template.render(Value::from_pairs(context));
        let text = text.map_err(|error| failure(name, &error))?;
        match text.len() {
            ..=LONGEST_TEXT => Ok(text),
            length => Err(bound(name, format!("{length} bytes of text, and at most {LONGEST_TEXT} are made"))),
        }
    }
}

fn bound(name: &str, bound: String) -> TemplateError {
    TemplateError::Bound { name: name.to_owned(), bound }
}

/// A refusal by the template itself, a bound, or any other failure.
fn failure(name: &str, error: &Error) -> TemplateError {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TemplateError::Refused(message.clone());
        }
        if cause.downcast_ref::<Error>().is_some_and(|cause| cause.kind() == ErrorKind::OutOfFuel) {
            return bound(name, format!("more than {MOST_STEPS} steps{}", line(error)));
        }
        source = cause.source();
    }
    TemplateError::Failed(describe(error))
}

/// Kind, detail and line.
fn describe(error: &Error) -> String {
    let line = line(error);
    match error.detail() {
        Some(detail) => format!("{}: {detail}{line}", error.kind()),
        None => format!("{}{line}", error.kind()),
    }
}

fn line(error: &Error) -> String {
    error.line().map_or_else(String::new, |line| format!(" (line {line})"))
}
