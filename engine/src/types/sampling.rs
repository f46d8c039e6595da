//! How the next token of a request is chosen.

/// Sampling parameters of one request, already validated. Field meanings follow the OpenAI and vLLM servers.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 means greedy: the largest logit, the smallest id on a tie.
    pub temperature: f32,
    /// Keep the `top_k` largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of tokens whose probability reaches `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens whose probability is below `min_p` times the largest one; 0 keeps all.
    pub min_p: f32,
    /// Key of the random stream. The engine draws one when the client gave none, so it is always present.
    pub seed: u64,
    /// Divides positive and multiplies negative logits of every token of prompt and output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every token that the output holds; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit once per occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// The output ends where one of these strings appears; the string itself is not returned.
    pub stop: Vec<String>,
    /// Return the stop string that ended the output too.
    pub include_stop: bool,
    /// The output ends at one of these tokens; the token itself is not returned as text.
    pub stop_token_ids: Vec<u32>,
    /// Treat end-of-sequence tokens like any other.
    pub ignore_eos: bool,
    /// No end-of-sequence or stop token before this many output tokens.
    pub min_tokens: u32,
    /// Most output tokens.
    pub max_tokens: u32,
    /// Number of independent outputs.
    pub n: u32,
    /// Report the log-probability of the chosen token and of this many best ones.
    pub logprobs: Option<u32>,
    /// The same for the prompt's tokens.
    pub prompt_logprobs: Option<u32>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            stop: Vec::new(),
            include_stop: false,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            min_tokens: 0,
            max_tokens: 16,
            n: 1,
            logprobs: None,
            prompt_logprobs: None,
        }
    }
}
