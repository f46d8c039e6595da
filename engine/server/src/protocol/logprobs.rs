//! Log-probabilities in the forms of both endpoints.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Serialize;
use utoipa::ToSchema;

/// Log-probabilities of a chat answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatLogprobs {
    pub content: Vec<ChatTokenLogprob>,
    /// Always null: this server never refuses in words of its own.
    #[schema(value_type = Option<Vec<ChatTokenLogprob>>, required)]
    pub refusal: (),
}

/// One token of a chat answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatTokenLogprob {
    pub token: String,
    pub logprob: f32,
    /// The token's bytes; part of a character in some vocabularies.
    #[schema(value_type = Vec<u32>)]
    pub bytes: Vec<u8>,
    pub top_logprobs: Vec<ChatAlternative>,
}

/// One of the most likely tokens at a position.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChatAlternative {
    pub token: String,
    pub logprob: f32,
    #[schema(value_type = Vec<u32>)]
    pub bytes: Vec<u8>,
}

/// Log-probabilities of a text completion. The lists have one entry per token.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Characters of the answer before the token.
    pub text_offset: Vec<u64>,
    /// Null for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    pub tokens: Vec<String>,
    /// Most likely tokens first.
    #[schema(value_type = Vec<Option<BTreeMap<String, f32>>>)]
    pub top_logprobs: Vec<Option<IndexMap<String, f32>>>,
}

/// Log-probabilities at one position of a prompt, by token id; null for the first position.
pub type PromptLogprobs = Vec<Option<IndexMap<u32, PromptTokenLogprob>>>;

/// One token at one position of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptTokenLogprob {
    pub logprob: f32,
    /// 1 for the most likely token.
    pub rank: u32,
    pub decoded_token: String,
}

/// How `PromptLogprobs` looks in JSON.
pub type PromptLogprobsSchema = Vec<Option<BTreeMap<String, PromptTokenLogprob>>>;
