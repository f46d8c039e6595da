//! Bodies of `/v1/completions`.

use serde::Serialize;
use utoipa::ToSchema;

use super::common::CommonFields;
use super::logprobs::{CompletionLogprobs, PromptLogprobs, PromptLogprobsSchema};
use super::object::json_object;
use super::prompt::{Prompts, prompts_schema};
use super::usage::UsageBody;

json_object! {
    /// A text completion request.
    pub struct CompletionRequest {
        /// Name of the served model.
        #[schema(required, nullable = false)]
        model: String,
        #[schema(required, nullable = false, schema_with = prompts_schema)]
        prompt: Prompts,
        /// Return the prompt before the answer.
        echo: bool,
        /// Report the log-probability of every token, with this many alternatives.
        #[schema(minimum = 0, maximum = 20)]
        logprobs: u32,
        ..common: CommonFields,
    }
}

/// A text completion: whole, or one event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub struct Completion<'a> {
    #[schema(value_type = String)]
    pub id: &'a str,
    #[schema(value_type = String, pattern = "^text_completion$")]
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    #[schema(value_type = String)]
    pub model: &'a str,
    pub system_fingerprint: &'static str,
    #[schema(value_type = Vec<CompletionChoice>)]
    pub choices: &'a [CompletionChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UsageBody>)]
    pub usage: Option<Option<UsageBody>>,
}

/// One answer: prompt number times `n` plus output number.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompletionChoice<'a> {
    pub index: u32,
    #[schema(value_type = String)]
    pub text: std::borrow::Cow<'a, str>,
    #[schema(required)]
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`; null before the end of a stream.
    #[schema(value_type = Option<String>, required)]
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptLogprobsSchema>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
}
