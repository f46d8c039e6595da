//! A text completion request, checked and tokenised.

use std::sync::Arc;

use engine::tokenizer::Framing;
use engine::types::SamplingParams;

use crate::admission;
use crate::error::ApiError;
use crate::ids;
use crate::protocol::completion::CompletionRequest;
use crate::protocol::known::{self, Place};
use crate::protocol::object::{Fields, Object};
use crate::protocol::prompt::Prompt;
use crate::service::Service;
use crate::settings::Limits;

use super::tokens::{Wish, budget};
use super::{Job, Task, sampling};

/// OpenAI's default for text completions.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// A text completion, ready to run.
#[derive(Clone, Debug)]
pub struct CompletionJob {
    pub job: Job,
    /// The text of each prompt, if it is to be returned.
    pub echo: Option<Vec<String>>,
    /// The client asked for no output at all, only for its prompt's log-probabilities: one token is made and dropped.
    pub score_only: bool,
    /// The client asked for log-probabilities.
    pub logprobs: bool,
    /// The client asked for `prompt_logprobs`; the engine may compute them for `echo` too.
    pub prompt_logprobs: bool,
}

/// Checks a request against the service and the limits, and tokenises its prompts.
pub async fn completion_job(
    body: Object<CompletionRequest>,
    service: &Service,
    limits: &Limits,
) -> Result<CompletionJob, ApiError> {
    let Object { fields, extras } = body;
    let mut ignored = Vec::new();
    service.require_model(fields.model.as_deref().ok_or_else(|| ApiError::missing("model"))?)?;
    known::check(&extras, Place::Completion, "", CompletionRequest::names, &mut ignored)?;
    let mut params = sampling::params(&fields.common, limits, service)?;
    let stream = sampling::stream(&fields.common, &mut ignored)?;
    let cache_salt = sampling::cache_salt(&fields.common)?;
    let priority = sampling::priority(&fields.common, limits)?;
    let (wish, score_only) = wish(&fields)?;
    let echo = fields.echo.unwrap_or(false);
    let prompt_logprobs = params.prompt_logprobs.is_some();
    params.logprobs = logprobs(&fields, limits)?;
    if echo && params.prompt_logprobs.is_none() {
        params.prompt_logprobs = params.logprobs;
    }

    let prompts = fields.prompt.ok_or_else(|| ApiError::missing("prompt"))?.0;
    if prompts.is_empty() {
        return Err(ApiError::invalid("prompt", "`prompt` is an empty list; give at least one prompt"));
    }
    let most = service.most_sequences(limits);
    admission::require_room(prompts.len().saturating_mul(params.n as usize), most)?;
    let framing = super::framing(fields.common.add_special_tokens, Framing::Added);
    let mut echoes = echo.then(Vec::new);
    let mut tasks = Vec::with_capacity(prompts.len());
    let wants_ran = fields.common.archway_usage.unwrap_or(false);
    let (single, drawn) = (prompts.len() == 1, fields.common.seed.is_none());
    for (index, prompt) in prompts.into_iter().enumerate() {
        // Other connections get their turn between many short prompts.
        tokio::task::yield_now().await;
        let param = if single { "prompt".to_owned() } else { format!("prompt[{index}]") };
        let (tokens, text) = read(prompt, service, framing, echo, &param).await?;
        if let Some(echoes) = &mut echoes {
            echoes.push(text);
        }
        params.max_tokens = budget(&param, tokens.len(), service.model.context, wish)?;
        require_minimum(&params)?;
        if drawn && index > 0 {
            params.seed = ids::draw();
        }
        tasks.push(Task { prompt: tokens.into(), params: Arc::new(params.clone()) });
    }
    super::require_answer_in_bounds(&tasks, limits)?;
    let job = Job { tasks, priority, cache_salt, stream, wants_ran, ignored };
    Ok(CompletionJob { job, echo: echoes, score_only, logprobs: params.logprobs.is_some(), prompt_logprobs })
}

/// Tokens of a prompt, and its text if that is to be echoed.
async fn read(
    prompt: Prompt,
    service: &Service,
    framing: Framing,
    echo: bool,
    param: &str,
) -> Result<(Vec<u32>, String), ApiError> {
    match prompt {
        Prompt::Text(text) => {
            let copy = if echo { text.clone() } else { String::new() };
            Ok((super::encode(service, text, framing, param).await?, copy))
        }
        Prompt::Tokens(tokens) => {
            let vocabulary = service.codec.vocabulary();
            for (index, &token) in tokens.iter().enumerate() {
                if token >= vocabulary {
                    super::require_vocabulary(&format!("{param}[{index}]"), token, vocabulary)?;
                }
            }
            let text = if echo { service.codec.decode(&tokens) } else { Ok(String::new()) };
            Ok((tokens, text.map_err(|message| ApiError::invalid(param, format!("`{param}`: {message}")))?))
        }
    }
}

fn logprobs(fields: &CompletionRequest, limits: &Limits) -> Result<Option<u32>, ApiError> {
    fields.logprobs.map(|count| sampling::alternatives("logprobs", i64::from(count), limits)).transpose()
}

/// The wished number of output tokens, and whether it is none.
fn wish(fields: &CompletionRequest) -> Result<(Wish, bool), ApiError> {
    match fields.common.max_tokens {
        Some(0) if fields.echo == Some(true) => Ok((Wish { asked: Some(("max_tokens", 1)), default: None }, true)),
        Some(0) => Err(ApiError::invalid("max_tokens", "`max_tokens` must be at least 1, or 0 with `echo: true`")),
        asked => {
            let asked = asked.map(|count| ("max_tokens", count));
            Ok((Wish { asked, default: Some(DEFAULT_MAX_TOKENS) }, false))
        }
    }
}

/// 400 if an output would have to be longer than it may be.
pub fn require_minimum(params: &SamplingParams) -> Result<(), ApiError> {
    if params.min_tokens <= params.max_tokens {
        return Ok(());
    }
    let (least, most) = (params.min_tokens, params.max_tokens);
    let message = format!("`min_tokens` is {least}, but at most {most} output tokens are possible");
    Err(ApiError::invalid("min_tokens", message))
}
