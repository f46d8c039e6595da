//! Bodies of `/tokenize` and `/detokenize`, in vLLM's form.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::content::ChatMessage;
use super::object::{Object, json_object};

json_object! {
    /// Either `prompt` or `messages`.
    pub struct TokenizeRequest {
        model: String,
        prompt: String,
        #[schema(value_type = Option<Vec<ChatMessage>>, min_items = 1)]
        messages: Vec<Object<ChatMessage>>,
        /// Add the model's special tokens: by default for a prompt, not for messages.
        add_special_tokens: bool,
        /// Open the assistant's turn at the end; true by default.
        add_generation_prompt: bool,
        #[schema(value_type = Option<Object>)]
        chat_template_kwargs: Map<String, Value>,
        /// Return the tokens' names too.
        return_token_strs: bool,
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TokenizeResponse {
    pub count: usize,
    pub max_model_len: u32,
    pub tokens: Vec<u32>,
    #[schema(required)]
    pub token_strs: Option<Vec<String>>,
}

json_object! {
    /// Token ids to turn into text.
    pub struct DetokenizeRequest {
        model: String,
        #[schema(required, nullable = false)]
        tokens: Vec<u32>,
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct DetokenizeResponse {
    pub prompt: String,
}
