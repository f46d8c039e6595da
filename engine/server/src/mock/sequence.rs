//! One request of the mock engine: every output repeats the prompt.

use std::time::Instant;

use engine::runner::{Observation, Outcome, OutputTimes};
use engine::types::{
    EventSink, FinishReason, Request, RequestEvent, RequestFailure, RequestId, TokenLogprobs, TokenOutput, Usage,
};

use super::books::Books;
use super::codec::MockCodec;
use crate::text::Codec;

/// A request and how far its outputs are. All of them go in step.
pub struct Sequence {
    request: Request,
    sink: Box<dyn EventSink>,
    made: usize,
    /// Bytes of a character that is not complete yet.
    pending: Vec<u8>,
    start: Instant,
    /// When the first and the last token came.
    times: Option<(Instant, Instant)>,
}

impl Sequence {
    pub fn new(request: Request, sink: Box<dyn EventSink>) -> Self {
        Self { request, sink, made: 0, pending: Vec::new(), start: Instant::now(), times: None }
    }

    pub fn id(&self) -> RequestId {
        self.request.id
    }

    /// Outputs that run.
    pub fn outputs(&self) -> u32 {
        self.request.params.n
    }

    /// Tokens of prompt and outputs.
    pub fn tokens(&self) -> usize {
        self.request.prompt.len() + self.made
    }

    /// Makes the next token of every output. False when the request has ended or nobody listens.
    pub fn step(&mut self, books: &Books) -> bool {
        if self.made == 0 && !self.prompt_logprobs() {
            return false;
        }
        let prompt = &self.request.prompt;
        let Some(&id) = prompt.get(self.made % prompt.len().max(1)) else { return false };
        self.made += 1;
        self.time(books);
        let end = self.end(id);
        let text = self.text(id, end.is_some());
        let logprobs = self.request.params.logprobs.map(|_| certain(id));
        for index in 0..self.request.params.n {
            let tokens = vec![TokenOutput { id, logprobs: logprobs.clone() }];
            if !self.sink.send(RequestEvent::Output { index, tokens, text: text.clone() }) {
                return false;
            }
        }
        match end {
            None => true,
            Some(reason) => {
                self.finish(reason, books);
                false
            }
        }
    }

    /// Why the output ends with this token, if it does: after `max_tokens`, or when the prompt has been said once.
    fn end(&self, id: u32) -> Option<FinishReason> {
        let params = &self.request.params;
        let (made, least) = (self.made as u64, u64::from(params.min_tokens));
        if made >= least && params.stop_token_ids.contains(&id) {
            return Some(FinishReason::Stop);
        }
        if made >= u64::from(params.max_tokens) {
            return Some(FinishReason::Length);
        }
        let said = self.made >= self.request.prompt.len() && made >= least && !params.ignore_eos;
        said.then_some(FinishReason::Stop)
    }

    /// The text that becomes final with a token; at the end, whatever is left.
    fn text(&mut self, id: u32, last: bool) -> String {
        self.pending.extend(MockCodec.token_bytes(id));
        let complete = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() && !last => error.valid_up_to(),
            _ => self.pending.len(),
        };
        let bytes: Vec<u8> = self.pending.drain(..complete).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn prompt_logprobs(&self) -> bool {
        if self.request.params.prompt_logprobs.is_none() {
            return true;
        }
        let known = |(index, &id): (usize, &u32)| (index > 0).then(|| certain(id));
        let list = self.request.prompt.iter().enumerate().map(known).collect();
        self.sink.send(RequestEvent::PromptLogprobs(list))
    }

    /// Tells the observer of a token.
    fn time(&mut self, books: &Books) {
        let now = Instant::now();
        let (first, observation) = match self.times {
            None => (now, Observation::FirstToken { seconds: seconds(self.start, now) }),
            Some((first, last)) => (first, Observation::InterToken { seconds: seconds(last, now), tokens: 1 }),
        };
        self.times = Some((first, now));
        books.token(self.request.params.n, &observation);
    }

    fn finish(&self, reason: FinishReason, books: &Books) {
        let usage = Usage {
            prompt_tokens: self.request.prompt.len() as u32,
            completion_tokens: self.made as u32,
            cached_tokens: 0,
        };
        let times = OutputTimes {
            outcome: Outcome::Finished(reason),
            usage,
            queue: None,
            prefill: self.times.map(|(first, _)| seconds(self.start, first)),
            decode: self.times.map(|(first, last)| seconds(first, last)),
            end_to_end: seconds(self.start, Instant::now()),
        };
        for index in 0..self.request.params.n {
            books.output(&times);
            if !self.sink.send(RequestEvent::Finished { index, reason, usage }) {
                return;
            }
        }
    }

    /// Ends the request because the engine cannot go on.
    pub fn fail(&self, reason: &str) {
        self.sink.send(RequestEvent::Failed(RequestFailure::Engine(reason.to_owned())));
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    (to - from).as_secs_f64()
}

/// The mock knows what comes next: probability one.
fn certain(id: u32) -> TokenLogprobs {
    TokenLogprobs { logprob: 0.0, rank: 1, top: vec![(id, 0.0)] }
}
