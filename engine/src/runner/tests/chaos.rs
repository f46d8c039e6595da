//! A thousand requests, and everything that clients do to them.

use std::sync::mpsc::{SyncSender, sync_channel};

use super::*;
use crate::executor::Capacity;
use crate::sampler::{Counter, random_bits};

/// A reader with a small buffer: too slow, and it is gone.
struct BoundedSink(SyncSender<RequestEvent>);

impl EventSink for BoundedSink {
    fn send(&self, event: RequestEvent) -> bool {
        self.0.try_send(event).is_ok()
    }
}

/// Uniform below `limit`, reproducible.
fn dice(number: u32, what: u32, limit: u32) -> u32 {
    let counter = Counter { position: number, choice: what, node: 0, draw: 0 };
    (random_bits(2026, counter) % u64::from(limit)) as u32
}

fn chaotic_request(number: u32) -> Request {
    let shared = dice(number, 0, 60);
    let own = dice(number, 1, 30) + 1;
    let family = dice(number, 2, 3);
    let prompt =
        (0..shared).map(|at| (at * 7 + family) % VOCABULARY).chain((0..own).map(|at| (at + number) % VOCABULARY));
    let params = SamplingParams {
        temperature: dice(number, 3, 2) as f32,
        seed: u64::from(number),
        n: 1 + dice(number, 4, 3),
        ignore_eos: dice(number, 5, 2) == 0,
        min_tokens: dice(number, 6, 5),
        ..greedy(1 + dice(number, 7, 60))
    };
    Request { priority: dice(number, 8, 3) as i32, ..request(prompt.collect::<Vec<_>>(), params) }
}

/// What one client does; its thread checks whatever it receives.
fn client(engine: &Engine, number: u32) {
    let request = chaotic_request(number);
    match dice(number, 9, 8) {
        0 => drop(submit(engine, &request)),
        1 => {
            let receiver = submit(engine, &request);
            (0..dice(number, 10, 6)).for_each(|_| drop(receiver.recv_timeout(PATIENCE)));
        }
        2 => {
            let receiver = submit(engine, &request);
            (0..dice(number, 10, 6)).for_each(|_| drop(receiver.recv_timeout(PATIENCE)));
            engine.abort(request.id);
            events(&receiver);
        }
        3 => {
            let (sender, receiver) = sync_channel(2);
            engine.submit(request.clone(), Box::new(BoundedSink(sender))).unwrap();
            std::thread::sleep(Duration::from_millis(u64::from(dice(number, 11, 20))));
            while receiver.recv_timeout(PATIENCE).is_ok() {}
        }
        4 => {
            let bad = Request { prompt: vec![VOCABULARY + 1].into(), ..request };
            let (sender, _receiver) = channel();
            assert!(engine.submit(bad, Box::new(ChannelSink(sender))).is_err());
        }
        _ => assert_right(engine, &request),
    }
}

fn assert_right(engine: &Engine, request: &Request) {
    let answers = outputs(&events(&submit(engine, request)));
    assert_eq!(answers.len() as u32, request.params.n);
    for (answer, choice) in answers.iter().zip(0..) {
        let expected = expected(request, choice);
        assert_eq!(
            (&answer.tokens, &answer.text, answer.reason()),
            (&expected.tokens, &expected.text, expected.reason())
        );
    }
}

#[test]
fn a_thousand_rude_clients_leave_nothing_behind() {
    for overlap in [false, true] {
        // Just enough pages for the longest sequence, so that preemption is common; steps slow enough to meet in.
        let capacity = Capacity { pages: 26, slots: 12, rows: 40, ..mock().capacity };
        let tight = MockConfig { capacity, step_delay: Duration::from_micros(200), ..mock() };
        let engine = start(tight, config(overlap));
        std::thread::scope(|scope| {
            for worker in 0..25 {
                let engine = &engine;
                scope.spawn(move || (0..40).for_each(|round| client(engine, worker * 40 + round)));
            }
        });
        // The same answers as before, now that the storm is over.
        (2000..2020).for_each(|number| assert_right(&engine, &chaotic_request(number)));
        assert_eq!(engine.health(), Health::Ready);
        engine.drain(PATIENCE);
        assert!(engine.stats().preemptions > 0);
        assert!(engine.stats().prefix_hits > 0);
        assert_empty(&engine);
    }
}
