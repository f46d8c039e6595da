//! Chunks of a chat answer.

use std::sync::Arc;

use engine::types::RequestEvent;

use crate::alternatives;
use crate::answer::{FINGERPRINT, now};
use crate::collect::Totals;
use crate::generation::{TaskEvent, finish_word};
use crate::ids;
use crate::protocol::chat::{ChatChunkChoice, ChatCompletionChunk, ChatDelta};
use crate::request::{ChatJob, StreamReport};
use crate::service::Service;

use super::{ChunkWriter, Frame};

/// Writes `chat.completion.chunk` events.
pub struct ChatStream {
    service: Arc<Service>,
    id: String,
    created: u64,
    report: StreamReport,
    logprobs: bool,
    /// Outputs whose first chunk, which names the role, has gone out.
    opened: Vec<bool>,
    totals: Totals,
}

impl ChatStream {
    pub fn new(job: &ChatJob, report: StreamReport, totals: Totals, service: Arc<Service>) -> Self {
        let outputs = job.job.tasks.first().map_or(0, |task| task.params.n as usize);
        Self {
            service,
            id: ids::named("chatcmpl"),
            created: now(),
            report,
            logprobs: job.logprobs,
            opened: vec![false; outputs],
            totals,
        }
    }

    fn chunk(&self, choices: &[ChatChunkChoice], last: bool, out: &mut Frame) {
        let usage = match last {
            true => Some(self.totals.last_usage()),
            false => self.report.continuous_usage.then(|| self.totals.usage()),
        };
        out.json(&ChatCompletionChunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: self.service.name(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.report.usage.then_some(usage),
        });
    }

    /// The chunk that names the role comes with the first token, so that its time is that of the first token.
    fn open(&mut self, index: u32, out: &mut Frame) {
        match self.opened.get_mut(index as usize) {
            Some(opened) if !*opened => *opened = true,
            _ => return,
        }
        let delta = ChatDelta { role: Some("assistant"), content: Some(""), refusal: Some(()) };
        self.chunk(&[ChatChunkChoice { index, delta, logprobs: None, finish_reason: None }], false, out);
    }
}

impl ChunkWriter for ChatStream {
    fn event(&mut self, (task, event): TaskEvent, out: &mut Frame) {
        self.totals.see(task, &event);
        match event {
            RequestEvent::Output { index, tokens, text } => {
                self.open(index, out);
                let logprobs = self.logprobs.then(|| alternatives::chat(&tokens, self.service.codec.as_ref()));
                if !text.is_empty() || logprobs.is_some() {
                    let delta = ChatDelta { content: Some(&text), ..ChatDelta::default() };
                    self.chunk(&[ChatChunkChoice { index, delta, logprobs, finish_reason: None }], false, out);
                }
            }
            RequestEvent::Finished { index, reason, .. } => {
                self.open(index, out);
                let finish_reason = Some(finish_word(reason));
                let choice = ChatChunkChoice { index, delta: ChatDelta::default(), logprobs: None, finish_reason };
                self.chunk(&[choice], false, out);
            }
            RequestEvent::PromptLogprobs(_) | RequestEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, out: &mut Frame) {
        if self.report.usage {
            self.chunk(&[], true, out);
        }
    }
}
