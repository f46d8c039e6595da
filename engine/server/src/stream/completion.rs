//! Chunks of a text completion.

use std::sync::Arc;

use engine::types::{RequestEvent, TokenLogprobs};

use crate::alternatives::CompletionList;
use crate::answer::{FINGERPRINT, now};
use crate::collect::Totals;
use crate::generation::{TaskEvent, finish_word};
use crate::ids;
use crate::protocol::completion::{Completion, CompletionChoice};
use crate::protocol::logprobs::CompletionLogprobs;
use crate::request::{CompletionJob, StreamReport};
use crate::service::Service;

use super::{ChunkWriter, Frame};

/// Writes `text_completion` events.
pub struct CompletionStream {
    service: Arc<Service>,
    job: CompletionJob,
    id: String,
    created: u64,
    report: StreamReport,
    /// Per task: log-probabilities of its prompt, kept until its outputs have echoed it.
    prompts: Vec<Vec<Option<TokenLogprobs>>>,
    /// Per output: whether anything has gone out, and how many characters.
    progress: Vec<(bool, u64)>,
    totals: Totals,
}

impl CompletionStream {
    pub fn new(job: CompletionJob, report: StreamReport, totals: Totals, service: Arc<Service>) -> Self {
        let outputs = job.job.tasks.iter().map(|task| task.params.n as usize).sum();
        Self {
            service,
            id: ids::named("cmpl"),
            created: now(),
            report,
            prompts: vec![Vec::new(); job.job.tasks.len()],
            progress: vec![(false, 0); outputs],
            totals,
            job,
        }
    }

    /// The choice's number: outputs of earlier prompts come first. Every prompt of a request has the same `n`.
    fn choice(&self, task: usize, index: u32) -> u32 {
        let outputs = self.job.job.tasks.first().map_or(1, |task| task.params.n);
        task as u32 * outputs + index
    }

    fn chunk(&self, choices: &[CompletionChoice], last: bool, out: &mut Frame) {
        let usage = match last {
            true => Some(self.totals.last_usage()),
            false => self.report.continuous_usage.then(|| self.totals.usage()),
        };
        out.json(&Completion {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: self.service.name(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.report.usage.then_some(usage),
        });
    }

    fn write(
        &self,
        index: u32,
        text: &str,
        logprobs: Option<CompletionLogprobs>,
        finish_reason: Option<&'static str>,
        out: &mut Frame,
    ) {
        let text = text.into();
        self.chunk(&[CompletionChoice { index, text, logprobs, finish_reason, prompt_logprobs: None }], false, out);
    }

    /// Before an output's first chunk: its prompt, if that is echoed.
    fn open(&mut self, task: usize, choice: u32, out: &mut Frame) {
        match self.progress.get_mut(choice as usize) {
            Some((opened, _)) if !*opened => *opened = true,
            _ => return,
        }
        let Some(echo) = self.job.echo.as_ref().and_then(|echo| echo.get(task)) else { return };
        let mut list = CompletionList::default();
        if self.job.logprobs {
            list.prompt(&self.job.job.tasks[task].prompt, &self.prompts[task], self.service.codec.as_ref());
            self.progress[choice as usize].1 = list.offset();
        }
        self.write(choice, echo, self.job.logprobs.then(|| list.finish()), None, out);
    }
}

impl ChunkWriter for CompletionStream {
    fn event(&mut self, (task, event): TaskEvent, out: &mut Frame) {
        if !self.job.score_only || !matches!(event, RequestEvent::Output { .. }) {
            self.totals.see(task, &event);
        }
        match event {
            RequestEvent::PromptLogprobs(logprobs) => {
                if let Some(prompt) = self.prompts.get_mut(task) {
                    prompt.extend(logprobs);
                }
            }
            RequestEvent::Output { index, tokens, text } => {
                let choice = self.choice(task, index);
                self.open(task, choice, out);
                if self.job.score_only || (text.is_empty() && !self.job.logprobs) {
                    return;
                }
                let logprobs = self.job.logprobs.then(|| {
                    let mut list = CompletionList::at(self.progress[choice as usize].1);
                    list.outputs(&tokens, self.service.codec.as_ref());
                    self.progress[choice as usize].1 = list.offset();
                    list.finish()
                });
                self.write(choice, &text, logprobs, None, out);
            }
            RequestEvent::Finished { index, reason, .. } => {
                let choice = self.choice(task, index);
                self.open(task, choice, out);
                let reason = if self.job.score_only { "length" } else { finish_word(reason) };
                self.write(choice, "", None, Some(reason), out);
            }
            RequestEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, out: &mut Frame) {
        if self.report.usage {
            self.chunk(&[], true, out);
        }
    }
}
