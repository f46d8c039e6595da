//! The whole engine over the mock executor.

mod chaos;
mod failures;
mod following;
mod lifecycle;
mod streams;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::mock::{Answer, MockConfig, MockExecutor, answer};
use crate::types::{
    EventSink, FinishReason, Request, RequestEvent, RequestFailure, RequestId, Sampling, SamplingParams, TokenLogprobs,
    TokenOutput, Usage,
};

const VOCABULARY: u32 = 50;
const CONTEXT: u32 = 400;
const END: u32 = 0;
/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes each token as its number and a blank; ends at stop strings, holding nothing back.
struct Numbers {
    stop: Vec<String>,
    text: String,
}

struct NumbersPipeline;

impl TextPipeline for NumbersPipeline {
    fn decoder(&self, request: &Request) -> Box<dyn TextDecoder> {
        Box::new(Numbers { stop: request.params.stop.clone(), text: String::new() })
    }
}

impl TextDecoder for Numbers {
    fn push(&mut self, token: u32, text: &mut String) -> bool {
        let piece = format!("{token} ");
        self.text += &piece;
        let stopped = self.stop.iter().any(|stop| self.text.ends_with(stop));
        if !stopped {
            *text += &piece;
        }
        stopped
    }

    fn finish(&mut self, text: &mut String) {
        *text += "end";
    }
}

struct ChannelSink(Sender<RequestEvent>);

impl EventSink for ChannelSink {
    fn send(&self, event: RequestEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Observation>>);

impl Observer for Recorder {
    fn observe(&self, observation: &Observation) {
        self.0.lock().unwrap().push(*observation);
    }
}

fn mock() -> MockConfig {
    MockConfig::new(200, 8, 64, CONTEXT, VOCABULARY)
}

fn config(overlap: bool) -> EngineConfig {
    EngineConfig { end_tokens: Arc::from([END]), overlap, ..Default::default() }
}

fn start(mock: MockConfig, config: EngineConfig) -> Engine {
    let executor = Box::new(MockExecutor::new(mock));
    Engine::start(executor, Arc::new(NumbersPipeline), Arc::new(NoObserver), config).unwrap()
}

fn request(prompt: impl IntoIterator<Item = u32>, params: SamplingParams) -> Request {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Request {
        id: RequestId(NEXT.fetch_add(1, Ordering::Relaxed)),
        prompt: prompt.into_iter().collect::<Vec<_>>().into(),
        params: Arc::new(params),
        priority: 0,
        cache_salt: None,
    }
}

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { temperature: 0.0, max_tokens, ..Default::default() }
}

fn endless(max_tokens: u32) -> SamplingParams {
    SamplingParams { ignore_eos: true, ..greedy(max_tokens) }
}

fn submit(engine: &Engine, request: &Request) -> Receiver<RequestEvent> {
    let (sender, receiver) = channel();
    engine.submit(request.clone(), Box::new(ChannelSink(sender))).unwrap();
    receiver
}

/// All events of a request; the sink must be dropped in the end.
fn events(receiver: &Receiver<RequestEvent>) -> Vec<RequestEvent> {
    let mut events = Vec::new();
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(event) => events.push(event),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return events,
            Err(error) => panic!("{error} after {events:?}"),
        }
    }
}

/// One output put together from its events.
#[derive(Clone, Debug, Default, PartialEq)]
struct Output {
    tokens: Vec<TokenOutput>,
    text: String,
    finish: Option<(FinishReason, Usage)>,
}

impl Output {
    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }

    fn reason(&self) -> Option<FinishReason> {
        self.finish.map(|(reason, _)| reason)
    }
}

fn outputs(events: &[RequestEvent]) -> Vec<Output> {
    let mut outputs: Vec<Output> = Vec::new();
    for event in events {
        let (RequestEvent::Output { index, .. } | RequestEvent::Finished { index, .. }) = event else { continue };
        outputs.resize(outputs.len().max(*index as usize + 1), Output::default());
        let output = &mut outputs[*index as usize];
        assert_eq!(output.finish, None, "an event after the last one");
        match event {
            RequestEvent::Output { tokens, text, .. } => {
                output.tokens.extend_from_slice(tokens);
                output.text += text;
            }
            RequestEvent::Finished { reason, usage, .. } => output.finish = Some((*reason, *usage)),
            _ => {}
        }
    }
    outputs
}

/// What the mock answers, with the text that `Numbers` makes of it when no stop string occurs.
fn expected(request: &Request, choice: u32) -> Output {
    let end_tokens: Vec<u32> = (!request.params.ignore_eos).then_some(END).into_iter().collect();
    let (params, prompt) = (request.params.clone(), request.prompt.clone());
    let sampling = Sampling { params, prompt, output: vec![], choice, end_tokens: end_tokens.into() };
    let Answer { tokens, reason } = answer(&sampling, CONTEXT, VOCABULARY);
    let spoken = tokens.len() - usize::from(reason == FinishReason::Stop);
    let text: String = tokens[..spoken].iter().map(|token| format!("{} ", token.id)).collect();
    let usage =
        Usage { prompt_tokens: request.prompt.len() as u32, completion_tokens: tokens.len() as u32, cached_tokens: 0 };
    Output { tokens, text: text + "end", finish: Some((reason, usage)) }
}

/// The engine holds nothing any more. Call it after a drain.
fn assert_empty(engine: &Engine) {
    let stats = engine.stats();
    assert_eq!((stats.running, stats.waiting, stats.pages_used, stats.integrity_failures), (0, 0, 0, 0));
    assert_eq!(engine.shared.queue_lengths(), (0, 0));
}
