//! Refusals, aborts, draining, and the end.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;
use crate::executor::{Capacity, Executor, ExecutorError};
use crate::types::{Batch, StepOutput};

struct DeafSink;

impl EventSink for DeafSink {
    fn send(&self, _: RequestEvent) -> bool {
        false
    }
}

fn slow(milliseconds: u64) -> MockConfig {
    MockConfig { step_delay: Duration::from_millis(milliseconds), ..mock() }
}

fn refusal(engine: &Engine, request: Request) -> SubmitError {
    engine.submit(request, Box::new(DeafSink)).unwrap_err()
}

#[test]
fn impossible_requests_are_refused_by_name() {
    let engine = start(mock(), config(true));
    let with = |params: SamplingParams| request([1], params);
    let cases = [
        ("prompt", request([], greedy(1))),
        ("prompt", request([1, VOCABULARY], greedy(1))),
        ("prompt", request((0..CONTEXT).map(|_| 1), greedy(1))),
        ("n", with(SamplingParams { n: 0, ..greedy(1) })),
        ("n", with(SamplingParams { n: u32::MAX, ..greedy(1) })),
        ("max_tokens", with(greedy(0))),
        ("temperature", with(SamplingParams { temperature: -1.0, ..greedy(1) })),
        ("temperature", with(SamplingParams { temperature: f32::NAN, ..greedy(1) })),
        ("top_p", with(SamplingParams { top_p: 0.0, ..greedy(1) })),
        ("top_p", with(SamplingParams { top_p: 1.5, ..greedy(1) })),
        ("min_p", with(SamplingParams { min_p: -0.1, ..greedy(1) })),
        ("repetition_penalty", with(SamplingParams { repetition_penalty: 0.0, ..greedy(1) })),
        ("presence_penalty", with(SamplingParams { presence_penalty: f32::INFINITY, ..greedy(1) })),
        ("frequency_penalty", with(SamplingParams { frequency_penalty: f32::NAN, ..greedy(1) })),
        ("logit_bias", with(SamplingParams { logit_bias: vec![(3, f32::NAN)], ..greedy(1) })),
    ];
    for (name, request) in cases {
        match refusal(&engine, request) {
            SubmitError::Invalid { parameter, message } => assert_eq!(parameter, name, "{message}"),
            other => panic!("{name}: {other}"),
        }
    }
    let full = request((0..CONTEXT - 1).map(|_| 1), endless(9));
    assert_eq!(outputs(&events(&submit(&engine, &full)))[0].tokens.len(), 1);
    engine.drain(PATIENCE);
    assert_empty(&engine);
}

#[test]
fn a_full_queue_refuses_and_takes_again() {
    let engine = start(
        MockConfig { capacity: Capacity { slots: 1, ..mock().capacity }, ..slow(5) },
        EngineConfig { max_waiting: 2, max_waiting_tokens: 10, ..config(true) },
    );
    let running = submit(&engine, &request([1], endless(300)));
    assert!(matches!(running.recv_timeout(PATIENCE), Ok(RequestEvent::Output { .. })));
    let first = submit(&engine, &request([1; 4], endless(1)));
    let too_long = refusal(&engine, request([1; 7], endless(1)));
    assert_eq!(too_long, SubmitError::QueueFull { what: "prompt tokens", waiting: 4, limit: 10 });
    let second = submit(&engine, &request([1; 6], endless(1)));
    let error = refusal(&engine, request([1], endless(1)));
    assert_eq!(error, SubmitError::QueueFull { what: "requests", waiting: 2, limit: 2 });
    drop(running);
    assert_eq!(outputs(&events(&first))[0].tokens.len(), 1);
    assert_eq!(outputs(&events(&second))[0].tokens.len(), 1);
    assert_eq!(outputs(&events(&submit(&engine, &request([1; 10], endless(1)))))[0].tokens.len(), 1);
    engine.drain(PATIENCE);
    assert_empty(&engine);
}

#[test]
fn an_abort_ends_running_and_waiting_requests() {
    for overlap in [false, true] {
        let one = MockConfig { capacity: Capacity { slots: 1, ..mock().capacity }, ..slow(2) };
        let engine = start(one, config(overlap));
        let requests = [request([1, 2], endless(300)), request([3], endless(300))];
        let receivers = requests.each_ref().map(|request| submit(&engine, request));
        assert!(matches!(receivers[0].recv_timeout(PATIENCE), Ok(RequestEvent::Output { .. })));
        requests.iter().rev().for_each(|request| engine.abort(request.id));
        engine.abort(RequestId(u64::MAX));
        for receiver in &receivers {
            let last = events(receiver).pop();
            assert!(matches!(last, Some(RequestEvent::Finished { reason: FinishReason::Abort, .. })), "{last:?}");
        }
        assert_eq!(engine.drain(PATIENCE), 0);
        assert_eq!(engine.stats().finished_abort, 2);
        assert_empty(&engine);
    }
}

#[test]
fn a_reader_that_is_gone_ends_its_request() {
    let engine = start(slow(1), config(true));
    engine.submit(request([1], SamplingParams { n: 3, ..endless(390) }), Box::new(DeafSink)).unwrap();
    let other = request([2], endless(20));
    assert_eq!(outputs(&events(&submit(&engine, &other))), [expected(&other, 0)]);
    engine.drain(PATIENCE);
    assert_eq!(engine.stats().finished_abort, 3);
    assert!(engine.stats().steps < 60, "the request went on for {} steps", engine.stats().steps);
    assert_empty(&engine);
}

#[test]
fn a_request_id_in_use_is_refused_to_the_second_one() {
    let engine = start(slow(1), config(true));
    let first = request([1], endless(50));
    let receiver = submit(&engine, &first);
    let second = events(&submit(&engine, &first));
    assert!(
        matches!(&second[..], [RequestEvent::Failed(RequestFailure::Engine(message))] if message.contains("in use"))
    );
    assert_eq!(outputs(&events(&receiver)), [expected(&first, 0)]);
    engine.drain(PATIENCE);
    assert_empty(&engine);
}

#[test]
fn a_drain_finishes_what_runs_and_refuses_what_comes() {
    let engine = start(slow(2), config(true));
    let requests: Vec<Request> = (1..20).map(|seed| request([seed], endless(20))).collect();
    let receivers: Vec<_> = requests.iter().map(|request| submit(&engine, request)).collect();
    let draining = std::thread::spawn({
        let engine = engine.clone();
        move || engine.drain(PATIENCE)
    });
    while engine.health() == Health::Ready {
        std::thread::yield_now();
    }
    assert_eq!(refusal(&engine, request([1], greedy(1))), SubmitError::ShuttingDown);
    for (request, receiver) in requests.iter().zip(&receivers) {
        assert_eq!(outputs(&events(receiver)), [expected(request, 0)]);
    }
    assert_eq!(draining.join().unwrap(), 0);
    assert_eq!(engine.health(), Health::Stopped);
    assert_eq!(engine.drain(PATIENCE), 0);
    assert_empty(&engine);
}

#[test]
fn a_drain_cuts_off_at_its_deadline() {
    let engine = start(slow(5), config(true));
    let receivers: Vec<_> = (1..12).map(|seed| submit(&engine, &request([seed], endless(390)))).collect();
    assert_eq!(engine.drain(Duration::from_millis(60)), 11);
    for receiver in &receivers {
        assert_eq!(outputs(&events(receiver))[0].reason(), Some(FinishReason::Abort));
    }
    assert_empty(&engine);
}

#[test]
fn the_last_handle_takes_the_engine_with_it() {
    let engine = start(slow(2), config(true));
    let receiver = submit(&engine, &request([1], endless(390)));
    drop(engine.clone());
    assert!(receiver.recv_timeout(PATIENCE).is_ok());
    drop(engine);
    assert_eq!(outputs(&events(&receiver))[0].reason(), Some(FinishReason::Abort));
}

/// Takes a while to go, as one does that has a device's memory to free.
struct Heavy(MockExecutor, Arc<AtomicBool>);

impl Executor for Heavy {
    fn capacity(&self) -> Capacity {
        self.0.capacity()
    }

    fn submit(&mut self, batch: Batch) -> Result<(), ExecutorError> {
        self.0.submit(batch)
    }

    fn collect(&mut self) -> Result<StepOutput, ExecutorError> {
        self.0.collect()
    }
}

impl Drop for Heavy {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(200));
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test]
fn nothing_of_the_executor_is_left_when_the_last_handle_is_gone() {
    let (gone, begin) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let executor = Box::new(Heavy(MockExecutor::new(slow(1)), Arc::clone(&gone)));
    let engine = Engine::start(executor, Arc::new(NumbersPipeline), Arc::new(NoObserver), config(true)).unwrap();
    let _running = submit(&engine, &request([1], endless(390)));
    drop(engine.clone());
    assert!(!gone.load(Ordering::SeqCst), "another handle is there");
    drop(engine);
    assert!(gone.load(Ordering::SeqCst), "dropped after {:?}", begin.elapsed());
}

#[test]
fn a_useless_executor_is_refused() {
    let capacity = mock().capacity;
    for useless in [
        Capacity { page_size: 8, ..capacity },
        Capacity { pages: 0, ..capacity },
        Capacity { slots: 0, ..capacity },
        Capacity { rows: 0, ..capacity },
        Capacity { context: 1, ..capacity },
        Capacity { vocabulary: 0, ..capacity },
    ] {
        let executor = Box::new(MockExecutor::new(MockConfig { capacity: useless, ..mock() }));
        let result = Engine::start(executor, Arc::new(NoText), Arc::new(NoObserver), config(true));
        assert!(matches!(result, Err(StartError::Capacity(_))), "{useless:?}");
    }
}
