//! A chat completion request, checked and tokenised.

use engine::tokenizer::Framing;

use crate::error::ApiError;
use crate::protocol::chat::ChatCompletionRequest;
use crate::protocol::known::{self, Place};
use crate::protocol::object::{Fields, Object};
use crate::service::Service;
use crate::settings::Limits;

use super::tokens::{Wish, budget};
use super::{Job, Task, sampling};

/// A chat completion, ready to run.
#[derive(Clone, Debug)]
pub struct ChatJob {
    pub job: Job,
    /// The client asked for log-probabilities.
    pub logprobs: bool,
}

/// Checks a request against the service and the limits, and tokenises its conversation.
pub async fn chat_job(
    body: Object<ChatCompletionRequest>,
    service: &Service,
    limits: &Limits,
) -> Result<ChatJob, ApiError> {
    let Object { fields, extras } = body;
    let mut ignored = Vec::new();
    service.require_model(fields.model.as_deref().ok_or_else(|| ApiError::missing("model"))?)?;
    known::check(&extras, Place::Chat, "", ChatCompletionRequest::names, &mut ignored)?;
    let mut params = sampling::params(&fields.common, limits, service)?;
    let stream = sampling::stream(&fields.common, &mut ignored)?;
    let cache_salt = sampling::cache_salt(&fields.common)?;
    let priority = sampling::priority(&fields.common, limits)?;
    params.logprobs = logprobs(&fields, limits)?;
    let wish = wish(&fields)?;
    let wants_ran = fields.common.archway_usage.unwrap_or(false);

    let messages = fields.messages.ok_or_else(|| ApiError::missing("messages"))?;
    let generation = fields.add_generation_prompt;
    let chat = super::conversation(&messages, generation, fields.chat_template_kwargs, &mut ignored)?;
    let text = super::render(service, chat).await?;
    // Templates write the special tokens themselves.
    let framing = super::framing(fields.common.add_special_tokens, Framing::Omitted);
    let prompt = super::encode(service, text, framing, "messages").await?;
    params.max_tokens = budget("messages", prompt.len(), service.model.context, wish)?;
    super::completion::require_minimum(&params)?;

    let logprobs = params.logprobs.is_some();
    let tasks = vec![Task { prompt: prompt.into(), params: params.into() }];
    super::require_answer_in_bounds(&tasks, limits)?;
    Ok(ChatJob { job: Job { tasks, priority, cache_salt, stream, wants_ran, ignored }, logprobs })
}

fn logprobs(fields: &ChatCompletionRequest, limits: &Limits) -> Result<Option<u32>, ApiError> {
    match (fields.logprobs.unwrap_or(false), fields.top_logprobs) {
        (true, count) => sampling::alternatives("top_logprobs", i64::from(count.unwrap_or(0)), limits).map(Some),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::invalid("top_logprobs", "`top_logprobs` is only for requests with `logprobs: true`"))
        }
    }
}

fn wish(fields: &ChatCompletionRequest) -> Result<Wish, ApiError> {
    let asked = match (fields.max_completion_tokens, fields.common.max_tokens) {
        (Some(count), _) => Some(("max_completion_tokens", count)),
        (None, Some(count)) => Some(("max_tokens", count)),
        (None, None) => None,
    };
    match asked {
        Some((field, 0)) => Err(ApiError::invalid(field, format!("`{field}` must be at least 1"))),
        asked => Ok(Wish { asked, default: None }),
    }
}
