//! Whole answers from gathered outputs.

use axum::response::{IntoResponse, Response};
use engine::types::FinishReason;

use crate::alternatives::{self, CompletionList};
use crate::collect::{Output, TaskOutput};
use crate::error::ApiError;
use crate::generation::finish_word;
use crate::ids;
use crate::protocol::chat::{AssistantMessage, ChatChoice, ChatCompletion};
use crate::protocol::completion::{Completion, CompletionChoice};
use crate::protocol::usage::UsageBody;
use crate::request::{ChatJob, CompletionJob};
use crate::service::Service;
use crate::text::Codec;

/// Names the software that made an answer.
pub const FINGERPRINT: &str = concat!("archway-", env!("CARGO_PKG_VERSION"));

/// The present in seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn finish(output: &Output) -> &'static str {
    finish_word(output.finish.unwrap_or(FinishReason::Abort))
}

/// The answer to a chat request.
pub fn chat(job: &ChatJob, tasks: Vec<TaskOutput>, usage: UsageBody, service: &Service) -> Response {
    let codec = service.codec.as_ref();
    let task = tasks.into_iter().next().unwrap_or_default();
    let prompt_logprobs = job
        .job
        .tasks
        .first()
        .filter(|task| task.params.prompt_logprobs.is_some())
        .map(|asked| alternatives::prompt(&asked.prompt, &task.prompt_logprobs, codec));
    let choices = task.outputs.into_iter().enumerate().map(|(index, output)| ChatChoice {
        index: index as u32,
        finish_reason: finish(&output).to_owned(),
        logprobs: job.logprobs.then(|| alternatives::chat(&output.tokens, codec)),
        message: AssistantMessage { role: "assistant", content: output.text, refusal: (), annotations: [] },
    });
    let body = ChatCompletion {
        id: ids::named("chatcmpl"),
        object: "chat.completion",
        created: now(),
        model: service.name().to_owned(),
        system_fingerprint: FINGERPRINT,
        choices: choices.collect(),
        usage,
        prompt_logprobs,
    };
    json(&body)
}

/// The answer to a text completion request.
pub fn completion(job: &CompletionJob, tasks: &[TaskOutput], usage: UsageBody, service: &Service) -> Response {
    let codec = service.codec.as_ref();
    let mut choices = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        for output in &task.outputs {
            let index = choices.len() as u32;
            choices.push(completion_choice(job, number, index, task, output, codec));
        }
    }
    let usage = if job.score_only {
        UsageBody { completion_tokens: 0, total_tokens: usage.prompt_tokens, ..usage }
    } else {
        usage
    };
    let body = Completion {
        id: &ids::named("cmpl"),
        object: "text_completion",
        created: now(),
        model: service.name(),
        system_fingerprint: FINGERPRINT,
        choices: &choices,
        usage: Some(Some(usage)),
    };
    json(&body)
}

fn completion_choice<'a>(
    job: &CompletionJob,
    number: usize,
    index: u32,
    task: &'a TaskOutput,
    output: &'a Output,
    codec: &dyn Codec,
) -> CompletionChoice<'a> {
    let asked = &job.job.tasks[number];
    let echo = job.echo.as_ref().and_then(|echo| echo.get(number));
    let made = if job.score_only { &[] } else { output.tokens.as_slice() };
    let logprobs = job.logprobs.then(|| {
        let mut list = CompletionList::default();
        if echo.is_some() {
            list.prompt(&asked.prompt, &task.prompt_logprobs, codec);
        }
        list.outputs(made, codec);
        list.finish()
    });
    let text = match (echo, job.score_only) {
        (None, _) => output.text.as_str().into(),
        (Some(echo), true) => echo.clone().into(),
        (Some(echo), false) => format!("{echo}{}", output.text).into(),
    };
    CompletionChoice {
        index,
        text,
        logprobs,
        finish_reason: Some(if job.score_only { "length" } else { finish(output) }),
        prompt_logprobs: job.prompt_logprobs.then(|| alternatives::prompt(&asked.prompt, &task.prompt_logprobs, codec)),
    }
}

fn json(body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => ([(axum::http::header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => internal(&error).into_response(),
    }
}

/// 500 for what cannot happen with valid data.
pub fn internal(error: &dyn std::fmt::Display) -> ApiError {
    let message = format!("the answer could not be written: {error}");
    ApiError::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, message).with_code("internal_error")
}
