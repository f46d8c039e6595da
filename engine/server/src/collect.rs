//! Gathers the events of a job into whole outputs.

use std::sync::Arc;

use engine::types::{FinishReason, RequestEvent, TokenLogprobs, TokenOutput};

use crate::backend::{CollectiveCalls, PlanReport};
use crate::error::ApiError;
use crate::generation::Generation;
use crate::protocol::usage::{ArchwayUsage, UsageBody};
use crate::request::Job;
use crate::service::Service;

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
pub async fn collect(
    job: &Job,
    mut totals: Totals,
    mut generation: Generation,
) -> Result<(Vec<TaskOutput>, UsageBody), ApiError> {
    let mut tasks: Vec<TaskOutput> = job
        .tasks
        .iter()
        .map(|task| TaskOutput {
            prompt_logprobs: Vec::new(),
            outputs: vec![Output::default(); task.params.n as usize],
        })
        .collect();
    while let Some(event) = generation.next().await {
        let (task, event) = event?;
        totals.see(task, &event);
        if let Some(task) = tasks.get_mut(task) {
            take(task, event);
        }
    }
    Ok((tasks, totals.last_usage()))
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
pub struct Totals {
    prompt: u64,
    completion: u64,
    /// Per task: prompt tokens that came from the cache for its first output; the others share what that one made.
    cached: Vec<Option<u64>>,
    /// Where the request wants to know what ran.
    ran: Option<Ran>,
}

/// What ran since a request arrived.
struct Ran {
    plan: Arc<dyn PlanReport>,
    before: Vec<CollectiveCalls>,
}

impl Ran {
    fn since(plan: &Arc<dyn PlanReport>) -> Self {
        Self { before: plan.collective_calls(), plan: Arc::clone(plan) }
    }

    fn usage(&self) -> ArchwayUsage {
        let mut collectives = self.plan.collective_calls();
        for calls in &mut collectives {
            let same = |old: &&CollectiveCalls| CollectiveCalls { calls: old.calls, ..calls.clone() } == **old;
            calls.calls -= self.before.iter().find(same).map_or(0, |old| old.calls.min(calls.calls));
        }
        collectives.retain(|calls| calls.calls > 0);
        ArchwayUsage { collectives }
    }
}

impl Totals {
    /// Before the job is submitted.
    pub fn new(job: &Job, service: &Service) -> Self {
        let prompt = job.tasks.iter().map(|task| task.prompt.len() as u64).sum();
        let ran = job.wants_ran.then(|| Ran::since(&service.plan));
        Self { prompt, completion: 0, cached: vec![None; job.tasks.len()], ran }
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

    /// At the end: with what ran, if the request wants to know.
    pub fn last_usage(&self) -> UsageBody {
        UsageBody { archway: self.ran.as_ref().map(Ran::usage), ..self.usage() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::backend::PlanFallback;

    /// A plan whose sums have run as often as it was asked, and whose gather never runs again.
    #[derive(Default)]
    struct Asked(AtomicU64);

    impl PlanReport for Asked {
        fn document(&self) -> serde_json::Value {
            serde_json::Value::Null
        }

        fn collective_calls(&self) -> Vec<CollectiveCalls> {
            let asked = 10 * (1 + self.0.fetch_add(1, Ordering::Relaxed));
            let calls = |operation: &str, phase: &str, calls| CollectiveCalls {
                operation: operation.to_owned(),
                site: "mlp_output".to_owned(),
                phase: phase.to_owned(),
                algorithm: "one_shot".to_owned(),
                fusion: "none".to_owned(),
                size_bucket: "8KiB".to_owned(),
                calls,
            };
            let mut list = vec![calls("all_reduce", "decode", asked), calls("all_gather", "decode", 7)];
            if asked > 10 {
                list.push(calls("all_reduce", "verify", 3));
            }
            list
        }

        fn fallbacks(&self) -> Vec<PlanFallback> {
            Vec::new()
        }
    }

    #[test]
    fn what_ran_before_a_request_is_not_its_own() {
        let plan: Arc<dyn PlanReport> = Arc::new(Asked::default());
        let ran = Ran::since(&plan);
        let found: Vec<(String, String, u64)> =
            ran.usage().collectives.into_iter().map(|calls| (calls.operation, calls.phase, calls.calls)).collect();
        let row = |phase: &str, calls| ("all_reduce".to_owned(), phase.to_owned(), calls);
        assert_eq!(found, [row("decode", 10), row("verify", 3)]);
    }
}
