//! Token counts of an answer.

use serde::Serialize;
use utoipa::ToSchema;

use crate::backend::CollectiveCalls;

/// Token counts in OpenAI's form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageBody {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub prompt_tokens_details: PromptTokensDetails,
    /// Only where `archway_usage` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ArchwayUsage>)]
    pub archway: Option<ArchwayUsage>,
}

/// What ran for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ArchwayUsage {
    /// Collectives that ran from the request's arrival to its end. A step serves many requests at once, so those of the
    /// others in the same steps, and in steps between, are among them. Empty on one rank.
    pub collectives: Vec<CollectiveCalls>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokensDetails {
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u64,
}

impl UsageBody {
    pub fn new(prompt_tokens: u64, completion_tokens: u64, cached_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
            archway: None,
        }
    }
}
