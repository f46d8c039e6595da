use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use engine::executor::{Capacity, RankFactory, RanksConfig, RanksExecutor, Speculation};
use engine::runner::{Engine, EngineConfig, EngineStats, NoObserver, NoText};
use engine::spec::PaceSettings;
use engine::types::{EventSink, FinishReason, Request, RequestEvent, RequestId, SamplingParams, TokenOutput};

use super::{Golden, config, ranks};

/// An engine over the executor, with or without speculation.
pub struct Served {
    pub engine: Engine,
    next: u64,
    /// Outputs that were asked for.
    outputs: u64,
}

/// What one output of a request became.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub tokens: Vec<TokenOutput>,
    pub reason: Option<FinishReason>,
}

struct Sink(Sender<RequestEvent>);

impl EventSink for Sink {
    fn send(&self, event: RequestEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

impl Served {
    pub fn start(golden: &Golden, world_size: usize, capacity: Capacity, speculation: Option<Speculation>) -> Self {
        let own = config(&golden.config, &golden.weights, &Arc::default());
        Self::over(world_size, RanksConfig { capacity, speculation, ..own })
    }

    pub fn over(world_size: usize, config: RanksConfig) -> Self {
        Self::on(ranks(world_size), config)
    }

    pub fn on(ranks: impl RankFactory, config: RanksConfig) -> Self {
        let pace = config.speculation.as_ref().map(|own| PaceSettings { shape: own.shape, adaptive: false });
        let executor = RanksExecutor::start(ranks, config, |_| {}).expect("the ranks start");
        let settings = EngineConfig { speculation: pace, ..EngineConfig::default() };
        let engine = Engine::start(Box::new(executor), Arc::new(NoText), Arc::new(NoObserver), settings);
        Self { engine: engine.expect("the engine starts"), next: 0, outputs: 0 }
    }

    pub fn submit(&mut self, prompt: &[u32], params: &SamplingParams) -> (RequestId, Receiver<RequestEvent>) {
        self.next += 1;
        self.outputs += u64::from(params.n);
        let (sender, receiver) = channel();
        let (id, params) = (RequestId(self.next), Arc::new(params.clone()));
        let request = Request { id, prompt: Arc::from(prompt), params, priority: 0, cache_salt: None };
        self.engine.submit(request, Box::new(Sink(sender))).expect("the request is valid");
        (id, receiver)
    }

    /// The counters once every output has ended and was counted.
    pub fn stats(&self) -> EngineStats {
        for _ in 0..5000 {
            let stats = self.engine.stats();
            let ended = stats.finished_stop + stats.finished_length + stats.finished_abort + stats.failed;
            if ended == self.outputs {
                return stats;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the engine does not come to rest");
    }

    /// Submits all at once and waits for every output, in order of request and choice.
    pub fn answer(&mut self, requests: &[(Vec<u32>, SamplingParams)]) -> Vec<Output> {
        let receivers: Vec<_> =
            requests.iter().map(|(prompt, params)| (params.n, self.submit(prompt, params).1)).collect();
        receivers.into_iter().flat_map(|(count, events)| collect(count, &events)).collect()
    }
}

/// The outputs of one request.
pub fn collect(count: u32, events: &Receiver<RequestEvent>) -> Vec<Output> {
    let mut outputs = vec![Output { tokens: Vec::new(), reason: None }; count as usize];
    for event in events {
        match event {
            RequestEvent::Output { index, tokens, .. } => outputs[index as usize].tokens.extend(tokens),
            RequestEvent::Finished { index, reason, .. } => outputs[index as usize].reason = Some(reason),
            RequestEvent::PromptLogprobs(_) => {}
            RequestEvent::Failed(failure) => panic!("a request failed: {failure}"),
        }
        if outputs.iter().all(|output| output.reason.is_some()) {
            break;
        }
    }
    outputs
}
