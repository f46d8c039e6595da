//! What a failing executor does to requests.

use super::*;
use crate::executor::Capacity;
use crate::mock::Fault;

fn faulty(faults: &[(u64, Fault)]) -> MockConfig {
    MockConfig { faults: faults.to_vec(), ..mock() }
}

fn failure(events: &[RequestEvent]) -> &str {
    match events.last() {
        Some(RequestEvent::Failed(RequestFailure::Engine(message))) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_step_ends_its_requests_and_no_others() {
    for (fault, overlap) in [(Fault::Step, false), (Fault::Step, true), (Fault::Submit, false), (Fault::Submit, true)] {
        let engine = start(faulty(&[(5, fault)]), config(overlap));
        let lost = request([1, 2, 3], SamplingParams { n: 2, ..endless(30) });
        let events_of_lost = events(&submit(&engine, &lost));
        assert!(failure(&events_of_lost).contains("step 5"), "{}", failure(&events_of_lost));
        assert_eq!(engine.health(), Health::Ready);
        for later in [lost, request([4], endless(30))] {
            let later = Request { id: RequestId(later.id.0 + 1_000_000), ..later };
            assert_eq!(outputs(&events(&submit(&engine, &later)))[0].tokens, expected(&later, 0).tokens);
        }
        engine.drain(PATIENCE);
        assert_eq!(engine.stats().failed, 2);
        assert_empty(&engine);
    }
}

/// The slot that a refused step should have retired is taken again later; the mock would object if it still held
/// its old sequence.
#[test]
fn slots_are_retired_although_a_step_was_refused() {
    for overlap in [false, true] {
        for step in 1..8 {
            let two = Capacity { slots: 2, ..mock().capacity };
            let engine = start(MockConfig { capacity: two, ..faulty(&[(step, Fault::Submit)]) }, config(overlap));
            // The short one's slot is retired with a step of the long one alone.
            let receivers =
                [request([1], endless(30)), request([2], endless(2))].map(|request| submit(&engine, &request));
            let failed =
                receivers.iter().map(events).filter(|events| matches!(events.last(), Some(RequestEvent::Failed(_))));
            assert!(failed.count() >= 1);
            let later = [request([3], endless(9)), request([4], endless(9))];
            let receivers = later.each_ref().map(|request| submit(&engine, request));
            for (request, receiver) in later.iter().zip(&receivers) {
                assert_eq!(outputs(&events(receiver)), [expected(request, 0)]);
            }
            engine.drain(PATIENCE);
            assert_eq!(engine.health(), Health::Stopped);
            assert_empty(&engine);
        }
    }
}

#[test]
fn a_fatal_failure_ends_everything_and_is_named_from_then_on() {
    for (fault, word) in [
        (Fault::Fatal, "failed for good"),
        (Fault::Panic, "mock: step 3 panics"),
        (Fault::Short, "entries were asked for"),
    ] {
        for overlap in [false, true] {
            let engine = start(faulty(&[(3, fault)]), config(overlap));
            let receivers: Vec<_> = (1..20)
                .filter_map(|seed| {
                    let (sender, receiver) = channel();
                    engine.submit(request([seed], endless(50)), Box::new(ChannelSink(sender))).ok().map(|()| receiver)
                })
                .collect();
            for receiver in &receivers {
                assert!(failure(&events(receiver)).contains(word));
            }
            assert!(matches!(engine.health(), Health::Failed(message) if message.contains(word)));
            let (sender, _receiver) = channel();
            let refused = engine.submit(request([1], greedy(1)), Box::new(ChannelSink(sender))).unwrap_err();
            assert!(matches!(refused, SubmitError::Unhealthy(message) if message.contains(word)));
            assert_eq!(engine.drain(PATIENCE), 0);
            assert_eq!(engine.stats().failed, receivers.len() as u64);
            assert_empty(&engine);
        }
    }
}

#[test]
fn a_panic_of_a_sink_fails_the_engine_by_name() {
    struct Bomb;
    impl EventSink for Bomb {
        fn send(&self, _: RequestEvent) -> bool {
            panic!("boom")
        }
    }
    let engine = start(mock(), config(true));
    engine.submit(request([1], endless(5)), Box::new(Bomb)).unwrap();
    assert_eq!(engine.drain(PATIENCE), 0);
    assert!(matches!(engine.health(), Health::Failed(message) if message.contains("boom")));
}
