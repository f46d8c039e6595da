//! Request fields that chat and text completions share.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::ToSchema;

use super::object::{Object, json_object};

json_object! {
    /// Sampling and scheduling fields of both completion endpoints.
    pub struct CommonFields {
        /// Most output tokens.
        #[schema(minimum = 0, maximum = 4294967295u32)]
        max_tokens: u32,
        /// 0 takes the most likely token.
        #[schema(minimum = 0, maximum = 100)]
        temperature: f32,
        /// Keep the smallest set of tokens whose probability reaches this.
        #[schema(exclusive_minimum = 0, maximum = 1)]
        top_p: f32,
        /// Keep this many of the most likely tokens; 0 or -1 keeps all.
        #[schema(minimum = -1, maximum = 2147483647)]
        top_k: i32,
        /// Drop tokens less likely than this share of the most likely one.
        #[schema(minimum = 0, maximum = 1)]
        min_p: f32,
        /// Same seed, same answer.
        #[schema(minimum = -9223372036854775808i64, maximum = 9223372036854775807i64)]
        seed: i64,
        /// Divides positive and multiplies negative logits of tokens seen in prompt or output.
        #[schema(exclusive_minimum = 0, maximum = 100)]
        repetition_penalty: f32,
        /// Subtracted once from the logit of every token in the output.
        #[schema(minimum = -2, maximum = 2)]
        presence_penalty: f32,
        /// Subtracted from a token's logit for each occurrence in the output.
        #[schema(minimum = -2, maximum = 2)]
        frequency_penalty: f32,
        /// Token id to a value added to its logit.
        logit_bias: BTreeMap<String, f32>,
        /// End the output where one of these strings appears.
        stop: OneOrMany,
        /// End the output at one of these token ids.
        #[schema(value_type = Option<Vec<u32>>)]
        stop_token_ids: Vec<u32>,
        /// Return the stop string too.
        include_stop_str_in_output: bool,
        /// Treat end-of-sequence tokens like any other.
        ignore_eos: bool,
        /// No end before this many output tokens.
        #[schema(minimum = 0, maximum = 4294967295u32)]
        min_tokens: u32,
        /// Number of outputs for each prompt.
        #[schema(minimum = 1, maximum = 4294967295u32)]
        n: u32,
        /// Report log-probabilities of the prompt's tokens, with this many alternatives; -1 for none.
        #[schema(minimum = -1, maximum = 2147483647)]
        prompt_logprobs: i32,
        /// Stream the answer as server-sent events.
        stream: bool,
        #[schema(value_type = Option<StreamOptions>)]
        stream_options: Object<StreamOptions>,
        /// Report in `usage.archway` what ran for the answer; a stream then ends with its token counts.
        archway_usage: bool,
        /// Requests of a lower value go first.
        #[schema(minimum = -2147483648, maximum = 2147483647)]
        priority: i32,
        /// Shares cached prompt pages only with requests of the same value.
        #[schema(min_length = 1)]
        cache_salt: String,
        /// Add the model's special tokens to the prompt.
        add_special_tokens: bool,
    }
}

json_object! {
    /// What a stream reports beside the answer.
    pub struct StreamOptions {
        /// Send one more chunk with the token counts before the end.
        include_usage: bool,
        /// Send the token counts so far with every chunk.
        continuous_usage_stats: bool,
    }
}

/// One string or a list of them.
#[derive(Clone, Debug, Deserialize, PartialEq, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}
