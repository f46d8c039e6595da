//! From a step's output to events: text, stop strings, log-probabilities, times.

use std::time::Instant;

use super::request::OutputState;
use super::step::Collected;
use super::worker::Worker;
use super::{Observation, Outcome};
use crate::scheduler::Progress;
use crate::types::{EntryOutput, FinishReason, RequestEvent, RequestId, TokenOutput};

impl Worker {
    /// Sends what the last collected step brought.
    pub(super) fn deliver(&mut self) {
        let Some(Collected { progress, mut output, at }) = self.collected.take() else { return };
        for progress in progress {
            let entry = std::mem::take(&mut output.entries[progress.entry]);
            self.deliver_entry(progress, entry, at);
        }
    }

    fn deliver_entry(&mut self, progress: Progress, mut entry: EntryOutput, at: Instant) {
        // The request may have been aborted since the commit.
        let Some(request) = self.outputs.get(&progress.sequence).map(|output| output.request) else { return };
        if entry.drafted > 0 {
            self.count_drafts(&entry);
        }
        let logprobs = entry.prompt_logprobs.drain(progress.prompt_logprobs.clone()).map(Some).collect::<Vec<_>>();
        let mut listens = self.deliver_prompt_logprobs(request, logprobs, !entry.tokens.is_empty());
        entry.tokens.truncate(progress.tokens);
        let finish = if entry.tokens.is_empty() {
            None
        } else {
            let (still, finish) = self.deliver_tokens(&progress, entry.tokens, at, listens);
            listens = still;
            finish
        };
        if let Some(reason) = finish {
            self.scheduler.finish(progress.sequence);
            listens = self.end_output(progress.sequence, Outcome::Finished(reason), at, listens);
        }
        if !listens {
            self.abandon(request);
        }
    }

    /// Sends text and tokens; returns whether the sink listens, and how the output ended if it did.
    fn deliver_tokens(
        &mut self,
        progress: &Progress,
        mut tokens: Vec<TokenOutput>,
        at: Instant,
        listens: bool,
    ) -> (bool, Option<FinishReason>) {
        let Some(output) = self.outputs.get_mut(&progress.sequence) else { return (listens, None) };
        let mut text = String::new();
        let finish = output.decode(&mut tokens, progress.finish, &mut text);
        let count = tokens.len() as u32;
        let (first, before) = (output.first_token.is_none(), output.last_token.replace(at));
        output.first_token.get_or_insert(at);
        output.tokens += count;
        let (index, request) = (output.index, output.request);
        self.counters.generation_tokens += u64::from(count);
        let Some(request) = self.requests.get(&request) else { return (listens, finish) };
        if first {
            let seconds = (at - request.submitted).as_secs_f64();
            self.observer.observe(&Observation::FirstToken { seconds });
        }
        if let Some(before) = before {
            let seconds = (at - before).as_secs_f64();
            self.observer.observe(&Observation::InterToken { seconds, tokens: count });
        }
        (listens && request.sink.send(RequestEvent::Output { index, tokens, text }), finish)
    }

    /// Collects prompt log-probabilities and sends them once the prompt is done. Returns whether the sink listens.
    fn deliver_prompt_logprobs(
        &mut self,
        id: RequestId,
        new: Vec<Option<crate::types::TokenLogprobs>>,
        prompt_done: bool,
    ) -> bool {
        let Some(request) = self.requests.get_mut(&id) else { return true };
        let Some(logprobs) = request.prompt_logprobs.as_mut() else { return true };
        logprobs.extend(new);
        if !prompt_done || logprobs.len() < request.prompt_tokens as usize {
            return true;
        }
        let logprobs = request.prompt_logprobs.take().unwrap_or_default();
        request.sink.send(RequestEvent::PromptLogprobs(logprobs))
    }

    /// Nobody listens any more.
    fn abandon(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        for sequence in request.sequences.clone() {
            self.scheduler.finish(sequence);
            self.end_output(sequence, Outcome::Finished(FinishReason::Abort), Instant::now(), false);
        }
    }

    fn count_drafts(&mut self, entry: &EntryOutput) {
        let EntryOutput { drafted, accepted, .. } = *entry;
        self.counters.drafts += 1;
        self.counters.drafted_tokens += u64::from(drafted);
        self.counters.accepted_tokens += u64::from(accepted);
        self.observer.observe(&Observation::Speculation { drafted, accepted });
    }
}

impl OutputState {
    /// Text of new tokens. A stop string ends the output at its token: the rest is cut off. The token that ends an
    /// output by itself has no text.
    pub(super) fn decode(
        &mut self,
        tokens: &mut Vec<TokenOutput>,
        finish: Option<FinishReason>,
        text: &mut String,
    ) -> Option<FinishReason> {
        let silent = usize::from(finish == Some(FinishReason::Stop));
        for index in 0..tokens.len() - silent {
            if self.decoder.push(tokens[index].id, text) {
                tokens.truncate(index + 1);
                return Some(FinishReason::Stop);
            }
        }
        if finish.is_some() {
            self.decoder.finish(text);
        }
        finish
    }
}
