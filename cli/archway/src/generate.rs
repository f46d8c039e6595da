//! Running requests on an engine in this process, without HTTP.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use engine::types::{EventSink, FinishReason, Request, RequestEvent, RequestId, SamplingParams};
use engine_server::backend::Backend;

/// An event of one request, and when the engine sent it.
pub struct Timed {
    pub request: usize,
    pub event: RequestEvent,
    pub at: Instant,
}

struct Sink {
    request: usize,
    events: Sender<Timed>,
}

impl EventSink for Sink {
    fn send(&self, event: RequestEvent) -> bool {
        self.events.send(Timed { request: self.request, event, at: Instant::now() }).is_ok()
    }
}

/// Requests that run.
pub struct Run {
    events: Receiver<Timed>,
    /// Outputs whose last event has not come.
    open: usize,
}

impl Run {
    /// Submits one request per prompt, all with the same parameters but a seed of their own.
    pub fn start(backend: &dyn Backend, prompts: Vec<Vec<u32>>, params: &SamplingParams, first: u64) -> Result<Self> {
        let (sender, events) = channel();
        let mut open = 0;
        for (index, prompt) in prompts.into_iter().enumerate() {
            let number = first + index as u64;
            let request = Request {
                id: RequestId(number),
                prompt: prompt.into(),
                params: Arc::new(SamplingParams { seed: params.seed.wrapping_add(number), ..params.clone() }),
                priority: 0,
                cache_salt: None,
            };
            let sink = Sink { request: index, events: sender.clone() };
            backend.submit(request, Box::new(sink)).context("the engine refuses the request")?;
            open += params.n as usize;
        }
        Ok(Self { events, open })
    }

    /// The next event, or none when all outputs have ended.
    pub fn next(&mut self) -> Result<Option<Timed>> {
        if self.open == 0 {
            return Ok(None);
        }
        let timed = self.events.recv().context("the engine dropped a request")?;
        match &timed.event {
            RequestEvent::Failed(reason) => bail!("{reason}"),
            RequestEvent::Finished { reason: FinishReason::Abort, .. } => bail!("the engine aborted a request"),
            RequestEvent::Finished { .. } => self.open -= 1,
            _ => {}
        }
        Ok(Some(timed))
    }
}
