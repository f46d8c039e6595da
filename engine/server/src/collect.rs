//! Gathers the events of a job into whole outputs.

use engine::types::{FinishReason, RequestEvent, TokenLogprobs, TokenOutput};

use crate::error::ApiError;
use crate::generation::Generation;
use crate::protocol::usage::UsageBody;
use crate::request::Job;

/// Everything that one prompt produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskOutput {
    /// One entry per prompt token, if asked for.
    pub prompt_logprobs: Vec<Option<TokenLogprobs>>,
    /// One per `n`.
    pub outputs: Vec<Output>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub text: String,
    pub tokens: Vec<TokenOutput>,
    pub finish: Option<FinishReason>,
}

/// Waits for the end of every output.
pub async fn collect(job: &Job, mut generation: Generation) -> Result<(Vec<TaskOutput>, UsageBody), ApiError> {
    let mut tasks: Vec<TaskOutput> = job
        .tasks
        .iter()
        .map(|task| TaskOutput {
            prompt_logprobs: Vec::new(),
            outputs: vec![Output::default(); task.params.n as usize],
        })
        .collect();
    let mut totals = Totals::new(job);
    while let Some(event) = generation.next().await {
        let (task, event) = event?;
        totals.see(task, &event);
        if let Some(task) = tasks.get_mut(task) {
            take(task, event);
        }
    }
    Ok((tasks, totals.usage()))
}

fn take(task: &mut TaskOutput, event: RequestEvent) {
    match event {
        RequestEvent::PromptLogprobs(logprobs) => task.prompt_logprobs.extend(logprobs),
        RequestEvent::Output { index, tokens, text } => {
            if let Some(output) = task.outputs.get_mut(index as usize) {
                output.text.push_str(&text);
                output.tokens.extend(tokens);
            }
        }
        RequestEvent::Finished { index, reason, .. } => {
            if let Some(output) = task.outputs.get_mut(index as usize) {
                output.finish = Some(reason);
            }
        }
        RequestEvent::Failed(_) => {}
    }
}

/// Token counts over all prompts and outputs of a job. A prompt counts once, however many outputs it has.
#[derive(Clone, Debug)]
pub struct Totals {
    prompt: u64,
    completion: u64,
    /// Per task: prompt tokens that came from the cache for its first output; the others share what that one made.
    cached: Vec<Option<u64>>,
}

impl Totals {
    pub fn new(job: &Job) -> Self {
        let prompt = job.tasks.iter().map(|task| task.prompt.len() as u64).sum();
        Self { prompt, completion: 0, cached: vec![None; job.tasks.len()] }
    }

    pub fn see(&mut self, task: usize, event: &RequestEvent) {
        match event {
            RequestEvent::Output { tokens, .. } => self.completion += tokens.len() as u64,
            RequestEvent::Finished { usage, .. } => {
                if let Some(cached) = self.cached.get_mut(task) {
                    let new = u64::from(usage.cached_tokens);
                    *cached = Some(cached.map_or(new, |old| old.min(new)));
                }
            }
            _ => {}
        }
    }

    pub fn usage(&self) -> UsageBody {
        UsageBody::new(self.prompt, self.completion, self.cached.iter().flatten().sum())
    }
}
