//! An idle engine uses no processor time. A test binary of its own, so that the process runs nothing else.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use engine::mock::{MockConfig, MockExecutor};
use engine::runner::{Engine, EngineConfig, NoObserver, NoText};
use engine::types::{EventSink, Request, RequestEvent, RequestId, SamplingParams};

struct Sink(Sender<RequestEvent>);

impl EventSink for Sink {
    fn send(&self, event: RequestEvent) -> bool {
        self.0.send(event).is_ok()
    }
}

/// Nanoseconds on a processor and times scheduled, summed over the threads named `engine`.
fn engine_time() -> (u64, u64) {
    let mut total = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).unwrap().trim() == "engine" {
            let text = std::fs::read_to_string(path.join("schedstat")).unwrap();
            let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
            total = (total.0 + fields[0], total.1 + fields[2]);
        }
    }
    total
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_engine_is_never_scheduled() {
    for overlap in [false, true] {
        let executor = Box::new(MockExecutor::new(MockConfig::new(100, 8, 64, 400, 50)));
        let config = EngineConfig { overlap, ..Default::default() };
        let engine = Engine::start(executor, Arc::new(NoText), Arc::new(NoObserver), config).unwrap();
        let (sender, receiver) = channel();
        let params = Arc::new(SamplingParams { max_tokens: 20, ..Default::default() });
        let request = Request { id: RequestId(1), prompt: Arc::from([1, 2]), params, priority: 0, cache_salt: None };
        engine.submit(request, Box::new(Sink(sender))).unwrap();
        assert_eq!(receiver.iter().count(), 21);
        std::thread::sleep(Duration::from_millis(100));
        let before = engine_time();
        assert!(before.0 > 0, "no thread named `engine` has run");
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(engine_time(), before);
        engine.drain(Duration::from_secs(1));
    }
}
