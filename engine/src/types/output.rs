//! What one step produced.

/// Log-probabilities at one position, natural logarithm, after temperature 1 and before any penalty or filter.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Log-probability of the token itself.
    pub logprob: f32,
    /// 1 for the most likely token.
    pub rank: u32,
    /// The best tokens, most likely first; ties by ascending id.
    pub top: Vec<(u32, f32)>,
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenOutput {
    pub id: u32,
    pub logprobs: Option<TokenLogprobs>,
}

/// What one batch entry produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EntryOutput {
    /// Chosen tokens: none for an inner prefill chunk, one for decode, accepted ones and the bonus for verify.
    pub tokens: Vec<TokenOutput>,
    /// For `LogitsRows::All`: log-probability of the token that follows each row; the last row of a prompt has none.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Drafted tokens that were verified and accepted in this step, for metrics.
    pub drafted: u32,
    pub accepted: u32,
}

/// Where a step's time went on rank 0, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTiming {
    /// Drafting; 0 where nothing was drafted.
    pub draft: f64,
    /// The model's pass and the choice of tokens.
    pub target: f64,
    /// Keeping the caches in step after it.
    pub follow: f64,
    /// What the draft model took before all that for rows of earlier steps. In the others, too, where the host waits for a device
    /// in one of them.
    pub caught_up: f64,
}

/// One output per batch entry, in the batch's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    pub entries: Vec<EntryOutput>,
    /// Zero where the executor does not measure.
    pub timing: StepTiming,
}

/// Why an output ended; the words are OpenAI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// End of sequence, a stop token or a stop string.
    Stop,
    /// `max_tokens` or the context length.
    Length,
    /// The client went away or asked for it.
    Abort,
}
