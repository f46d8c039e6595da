//! Bodies of `/v1/chat/completions`.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::common::CommonFields;
use super::content::ChatMessage;
use super::logprobs::{ChatLogprobs, PromptLogprobs, PromptLogprobsSchema};
use super::object::{Object, json_object};
use super::usage::UsageBody;

json_object! {
    /// A chat completion request.
    pub struct ChatCompletionRequest {
        /// Name of the served model.
        #[schema(required, nullable = false)]
        model: String,
        /// The conversation, oldest turn first.
        #[schema(required, nullable = false, min_items = 1, value_type = Vec<ChatMessage>)]
        messages: Vec<Object<ChatMessage>>,
        /// Most output tokens; goes before `max_tokens`.
        #[schema(minimum = 1, maximum = 4294967295u32)]
        max_completion_tokens: u32,
        /// Report the log-probability of every output token.
        logprobs: bool,
        /// With this many alternatives.
        #[schema(minimum = 0, maximum = 20)]
        top_logprobs: u32,
        /// Open the assistant's turn at the end of the prompt.
        add_generation_prompt: bool,
        /// Further variables of the chat template.
        #[schema(value_type = Option<Object>)]
        chat_template_kwargs: Map<String, Value>,
        ..common: CommonFields,
    }
}

/// A complete chat answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletion {
    pub id: String,
    #[schema(value_type = String, pattern = "^chat\\.completion$")]
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub system_fingerprint: &'static str,
    pub choices: Vec<ChatChoice>,
    pub usage: UsageBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptLogprobsSchema>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
}

/// One of the `n` answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChoice {
    pub index: u32,
    pub message: AssistantMessage,
    #[schema(required)]
    pub logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    pub finish_reason: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct AssistantMessage {
    #[schema(value_type = String, pattern = "^assistant$")]
    pub role: &'static str,
    pub content: String,
    /// Always null.
    #[schema(value_type = Option<String>, required)]
    pub refusal: (),
    /// Always empty.
    #[schema(value_type = Vec<Value>)]
    pub annotations: [(); 0],
}

/// One event of a streamed chat answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatCompletionChunk<'a> {
    pub id: &'a str,
    #[schema(value_type = String)]
    pub object: &'static str,
    pub created: u64,
    pub model: &'a str,
    #[schema(value_type = String)]
    pub system_fingerprint: &'static str,
    /// Empty in the last chunk, which carries the usage.
    #[schema(value_type = Vec<ChatChunkChoice>)]
    pub choices: &'a [ChatChunkChoice<'a>],
    /// Present where `stream_options` asks for it; null before the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UsageBody>)]
    pub usage: Option<Option<UsageBody>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ChatChunkChoice<'a> {
    pub index: u32,
    #[schema(value_type = ChatDelta)]
    pub delta: ChatDelta<'a>,
    pub logprobs: Option<ChatLogprobs>,
    #[schema(value_type = Option<String>)]
    pub finish_reason: Option<&'static str>,
}

/// What is new since the last chunk.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct ChatDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub content: Option<&'a str>,
    /// Present, and null, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub refusal: Option<()>,
}
