//! Requests in the engine: their coming, their going, what is remembered in between.

use std::time::Instant;

use super::worker::Worker;
use super::{Observation, Outcome, OutputTimes, TextDecoder};
use crate::scheduler::SequenceId;
use crate::types::{EventSink, FinishReason, Request, RequestEvent, RequestFailure, RequestId, TokenLogprobs, Usage};

pub(super) struct ActiveRequest {
    pub sink: Box<dyn EventSink>,
    /// Those that have not ended, in order of choice.
    pub sequences: Vec<SequenceId>,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub submitted: Instant,
    /// Still counted in the queue: no sequence was ever admitted.
    pub queued: bool,
    /// Prompt log-probabilities so far, if they were asked for and are not sent.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
}

pub(super) struct OutputState {
    pub request: RequestId,
    pub index: u32,
    pub decoder: Box<dyn TextDecoder>,
    pub tokens: u32,
    pub admitted: Option<Instant>,
    pub first_token: Option<Instant>,
    pub last_token: Option<Instant>,
}

impl Worker {
    pub(super) fn accept(&mut self, request: Request, sink: Box<dyn EventSink>, submitted: Instant) {
        let failure = match self.shared.health() {
            super::Health::Failed(message) => Some(RequestFailure::Engine(message)),
            _ if self.requests.contains_key(&request.id) => {
                Some(RequestFailure::Engine(format!("request {} is in use", request.id.0)))
            }
            _ => None,
        };
        if let Some(failure) = failure {
            self.shared.leave_queue(request.prompt.len() as u64);
            self.counters.failed += u64::from(request.params.n);
            sink.send(RequestEvent::Failed(failure));
            return;
        }
        let sequences = self.scheduler.submit(&request);
        for (sequence, index) in sequences.iter().zip(0..) {
            let decoder = self.text.decoder(&request);
            let (admitted, first_token, last_token) = (None, None, None);
            let state =
                OutputState { request: request.id, index, decoder, tokens: 0, admitted, first_token, last_token };
            self.outputs.insert(*sequence, state);
        }
        let active = ActiveRequest {
            sink,
            sequences,
            prompt_tokens: request.prompt.len() as u32,
            cached_tokens: 0,
            submitted,
            queued: true,
            // The first token has no probability.
            prompt_logprobs: request.params.prompt_logprobs.map(|_| vec![None]),
        };
        self.requests.insert(request.id, active);
    }

    /// A sequence took a slot, perhaps again.
    pub(super) fn note_admission(&mut self, sequence: SequenceId, now: Instant) {
        let Some(output) = self.outputs.get_mut(&sequence) else { return };
        output.admitted.get_or_insert(now);
        let Some(request) = self.requests.get_mut(&output.request).filter(|request| request.queued) else { return };
        request.queued = false;
        request.cached_tokens = self.scheduler.cached_tokens(sequence).unwrap_or(0);
        self.shared.leave_queue(u64::from(request.prompt_tokens));
    }

    /// Ends every output of a request with `Abort`; tells the sink if it still listens.
    pub(super) fn abort(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let now = Instant::now();
        let mut listens = true;
        for sequence in request.sequences.clone() {
            self.scheduler.finish(sequence);
            listens = self.end_output(sequence, Outcome::Finished(FinishReason::Abort), now, listens);
        }
    }

    /// Ends a request with an error.
    pub(super) fn fail(&mut self, id: RequestId, failure: RequestFailure) {
        let Some(mut request) = self.requests.remove(&id) else { return };
        let now = Instant::now();
        for sequence in std::mem::take(&mut request.sequences) {
            self.scheduler.finish(sequence);
            if let Some(output) = self.outputs.remove(&sequence) {
                self.observe_end(&request, &output, Outcome::Failed, now);
            }
        }
        self.leave_queue_once(&mut request);
        request.sink.send(RequestEvent::Failed(failure));
    }

    /// Forgets an output that the scheduler no longer has. Sends `Finished` if `listens`; returns whether the sink
    /// still listens.
    pub(super) fn end_output(&mut self, sequence: SequenceId, outcome: Outcome, now: Instant, listens: bool) -> bool {
        let Some(output) = self.outputs.remove(&sequence) else { return listens };
        let Some(mut request) = self.requests.remove(&output.request) else { return listens };
        request.sequences.retain(|other| *other != sequence);
        self.observe_end(&request, &output, outcome, now);
        let mut listens = listens;
        if let (true, Outcome::Finished(reason)) = (listens, outcome) {
            let usage = usage(&request, &output);
            listens = request.sink.send(RequestEvent::Finished { index: output.index, reason, usage });
        }
        if request.sequences.is_empty() {
            self.leave_queue_once(&mut request);
        } else {
            self.requests.insert(output.request, request);
        }
        listens
    }

    fn leave_queue_once(&self, request: &mut ActiveRequest) {
        if std::mem::take(&mut request.queued) {
            self.shared.leave_queue(u64::from(request.prompt_tokens));
        }
    }

    fn observe_end(&mut self, request: &ActiveRequest, output: &OutputState, outcome: Outcome, now: Instant) {
        let counter = match outcome {
            Outcome::Finished(FinishReason::Stop) => &mut self.counters.finished_stop,
            Outcome::Finished(FinishReason::Length) => &mut self.counters.finished_length,
            Outcome::Finished(FinishReason::Abort) => &mut self.counters.finished_abort,
            Outcome::Failed => &mut self.counters.failed,
        };
        *counter += 1;
        let between = |from: Option<Instant>, to: Option<Instant>| Some((to? - from?).as_secs_f64());
        self.observer.observe(&Observation::Output(OutputTimes {
            outcome,
            usage: usage(request, output),
            queue: between(Some(request.submitted), output.admitted),
            prefill: between(output.admitted, output.first_token),
            decode: between(output.first_token, output.last_token),
            end_to_end: (now - request.submitted).as_secs_f64(),
        }));
    }
}

fn usage(request: &ActiveRequest, output: &OutputState) -> Usage {
    Usage {
        prompt_tokens: request.prompt_tokens,
        completion_tokens: output.tokens,
        cached_tokens: request.cached_tokens,
    }
}
