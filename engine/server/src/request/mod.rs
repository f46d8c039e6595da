//! From a parsed body to requests that the engine takes.

mod chat;
mod completion;
mod messages;
mod sampling;
mod tokens;

pub use chat::{ChatJob, chat_job};
pub use completion::{CompletionJob, completion_job};
pub use messages::conversation;
pub use sampling::check_defaults;
pub use tokens::{encode, framing, render, require_vocabulary};

use std::sync::Arc;

use engine::types::SamplingParams;

use crate::error::ApiError;
use crate::protocol::common::StreamOptions;
use crate::protocol::object::Object;
use crate::settings::Limits;

/// One prompt with its parameters; `params.seed` is drawn already.
#[derive(Clone, Debug)]
pub struct Task {
    pub prompt: Arc<[u32]>,
    pub params: Arc<SamplingParams>,
}

/// What both endpoints submit.
#[derive(Clone, Debug)]
pub struct Job {
    pub tasks: Vec<Task>,
    pub priority: i32,
    pub cache_salt: Option<Arc<str>>,
    pub stream: Option<StreamReport>,
    /// What ran is reported with the token counts.
    pub wants_ran: bool,
    /// Names of fields that were accepted and have no effect.
    pub ignored: Vec<String>,
}

/// 400 for an answer that is as large as a small request can make it: log-probabilities of long prompts, once for each
/// output.
fn require_answer_in_bounds(tasks: &[Task], limits: &Limits) -> Result<(), ApiError> {
    let of_task = |Task { prompt, params }: &Task| {
        let each = params.prompt_logprobs.map_or(0, |alternatives| 1 + alternatives as usize);
        prompt.len().saturating_mul(each).saturating_mul(params.n as usize)
    };
    let (count, most) = (tasks.iter().map(of_task).fold(0, usize::saturating_add), limits.prompt_logprobs);
    if count <= most {
        return Ok(());
    }
    let message = format!(
        "the answer would hold {count} log-probabilities of prompts, and at most {most} fit; ask for fewer alternatives, \
         outputs (`n`) or prompts, or for shorter ones"
    );
    Err(ApiError::invalid("prompt_logprobs", message).with_code("too_many_logprobs"))
}

/// What a stream reports beside the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamReport {
    pub usage: bool,
    pub continuous_usage: bool,
}

impl StreamReport {
    /// `always`: token counts are reported whatever the options say.
    fn new(options: Option<&Object<StreamOptions>>, always: bool) -> Self {
        let flag = |flag: Option<bool>| flag.unwrap_or(false);
        let report = options.map_or(Self::default(), |options| Self {
            usage: flag(options.include_usage) || flag(options.continuous_usage_stats),
            continuous_usage: flag(options.continuous_usage_stats),
        });
        Self { usage: report.usage || always, ..report }
    }
}
