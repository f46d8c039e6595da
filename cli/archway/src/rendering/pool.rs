//! All processes of one template.

use std::borrow::Cow;
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, anyhow};
use engine::tokenizer::{TemplateError, TemplateSource};
use engine_server::text::{Chat, CodecError};

use super::Conversation;
use super::process::{Failure, Process};

/// Renders conversations in processes of their own, one for each that is rendered at a time: one that takes long keeps no
/// other waiting. A process that has died is started again.
pub struct TemplatePool {
    source: TemplateSource,
    /// Those that have nothing to do.
    idle: Mutex<Vec<Process>>,
}

impl TemplatePool {
    /// Compiles the template in the first process. Errors: it is none, it goes over the bounds, or there is no process.
    pub fn start(source: TemplateSource) -> Result<Self> {
        let path = &source.path;
        let first = Process::start(&source).map_err(|failure| match failure {
            Failure::Template(error) => anyhow::Error::new(error),
            Failure::Lost(why) => anyhow!(why),
            Failure::Bound(what) => {
                anyhow!(
                    "{path}: the chat template {what} when it is compiled; fix it, or set another with --chat-template"
                )
            }
        })?;
        Ok(Self { source, idle: Mutex::new(vec![first]) })
    }

    /// Compiles the template and ends its process. Errors: as [`Self::start`].
    pub fn check(source: TemplateSource) -> Result<()> {
        let pool = Self::start(source)?;
        pool.take().map(Process::end).transpose()?;
        Ok(())
    }

    /// The text of a conversation. Errors, for the client: the template's own, it went over its bounds, or its process was
    /// taken away. All but the template's refusals are for who serves it too, with its path.
    pub fn render(&self, chat: &Chat) -> Result<String, CodecError> {
        let conversation = Conversation {
            messages: Cow::Borrowed(&chat.messages),
            add_generation_prompt: chat.add_generation_prompt,
            variables: Cow::Borrowed(&chat.variables),
        };
        self.ask(&conversation).map_err(|failure| {
            let error = match &failure {
                Failure::Template(error) => CodecError::Input(error.to_string()),
                Failure::Bound(what) => {
                    CodecError::Input(format!("the chat template {what} for this conversation; send less"))
                }
                Failure::Lost(why) => CodecError::Server(format!("{why}; try again")),
            };
            if !matches!(failure, Failure::Template(TemplateError::Refused(_))) {
                tracing::warn!(template = self.source.path, "{error}");
            }
            error
        })
    }

    fn ask(&self, conversation: &Conversation) -> Result<String, Failure> {
        let mut process = match self.take() {
            Some(process) => process,
            None => Process::start(&self.source)?,
        };
        let text = process.render(conversation);
        match text {
            Err(error) => Err(process.died(&error)),
            Ok(rendered) => {
                self.idle().push(process);
                rendered.map_err(Failure::Template)
            }
        }
    }

    /// A process that lives and has nothing to do.
    fn take(&self) -> Option<Process> {
        let mut idle = self.idle();
        iter::from_fn(|| idle.pop()).find_map(Process::alive)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
