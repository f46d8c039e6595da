//! A device that is handed the next step before the tokens of this one are read gives the same outputs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::executor::{Capacity, Executor, ExecutorError, RanksConfig, RanksExecutor};
use engine::types::{
    Batch, BatchEntry, FinishReason, LogitsRows, PageId, Phase, SamplingParams, SlotId, StepOutput, chosen,
};
use engine_cpu::Delay;

use crate::support::{Golden, Numbers, Output, Served, Settings, collect, config, generate, ranks};

fn capacity(pages: u32) -> Capacity {
    Capacity { pages, page_size: 16, slots: 16, rows: 128, context: 128, vocabulary: 512 }
}

/// An engine over a device that waits so long for the next step, and the count of steps that it was given ahead.
fn delayed(golden: &Golden, capacity: Capacity, milliseconds: u64) -> (Served, Arc<AtomicU64>) {
    let delay = Delay { time: Duration::from_millis(milliseconds), ..Delay::default() };
    let followed = Arc::clone(&delay.followed);
    let config = RanksConfig { capacity, ..config(&golden.config, &golden.weights, &Arc::default()) };
    (Served::on(ranks(1).with_delay(delay), config), followed)
}

fn assert_same(actual: &[Output], expected: &[Output]) {
    assert_eq!(actual.len(), expected.len());
    for (number, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert_eq!(actual, expected, "output {number}");
    }
}

/// Greedy and drawn, with ends by every reason, log-probabilities and penalties, which the host must see to, among them.
#[test]
fn every_sampling_parameter_and_several_outputs() {
    let golden = Golden::open("eagle3-tiny");
    let mut numbers = Numbers(4);
    let mut requests: Vec<_> = (0..80).map(|_| (numbers.prompt(&golden, 40), numbers.params())).collect();
    for (_, params) in requests.iter_mut().take(50) {
        // What a device does alone.
        let plain = SamplingParams::default();
        (params.logprobs, params.repetition_penalty) = (None, plain.repetition_penalty);
        (params.presence_penalty, params.frequency_penalty) = (plain.presence_penalty, plain.frequency_penalty);
    }
    let expected = Served::start(&golden, 1, capacity(128), None).answer(&requests);
    assert!(expected.iter().filter(|output| output.reason == Some(FinishReason::Stop)).count() > 10);
    let (mut served, followed) = delayed(&golden, capacity(128), 30);
    // A prompt keeps a step from following, and so does what the host must see to: a few come at once, and that later.
    let mut actual: Vec<Output> = requests[..50].chunks(4).flat_map(|few| served.answer(few)).collect();
    assert!(followed.load(Ordering::Relaxed) > 50, "the device ran ahead {} times", followed.load(Ordering::Relaxed));
    actual.extend(served.answer(&requests[50..]));
    assert_same(&actual, &expected);
    let stats = served.stats();
    assert!(stats.following_steps > 100, "{stats:?}");
    assert_eq!((stats.integrity_failures, stats.failed, stats.pages_used), (0, 0, 0));
    let tokens: usize = actual.iter().map(|output| output.tokens.len()).sum();
    assert_eq!(stats.generation_tokens, tokens as u64, "tokens after an end are not counted");
}

/// Outputs come in order, a third step is refused, and what follows on a lost step is lost.
#[test]
fn two_steps_are_in_flight_and_no_more() {
    let golden = Golden::open("qwen2-tiny");
    let start = |ranks| RanksExecutor::start(ranks, config(&golden.config, &golden.weights, &Arc::default()), |_| {});
    assert_eq!(start(ranks(1)).expect("the rank starts").depth(), 1);
    let delay = Delay { time: Duration::from_millis(500), ..Delay::default() };
    let mut executor = start(ranks(1).with_delay(delay.clone())).expect("the rank starts");
    assert_eq!(executor.depth(), 2);
    let prompt = &golden.prompts[0];
    generate(&mut executor, std::slice::from_ref(prompt), &Settings::greedy(64, 3));
    let decode = |step: u64, token: u32| {
        let start = (prompt.len() + 1 + step as usize) as u32;
        let entry = BatchEntry {
            slot: SlotId(0),
            phase: Phase::Decode,
            tokens: vec![token],
            start,
            pages: (0..8).map(|page| PageId(page * 4)).collect(),
            verify_tokens: 0,
            logits: LogitsRows::Last,
            sample: true,
            begin: None,
        };
        Batch { step, entries: vec![entry], retired: Vec::new() }
    };
    let token = |output: Result<StepOutput, ExecutorError>| output.expect("collect").entries[0].tokens[0].id;
    executor.submit(decode(1, golden.greedy[0][2])).expect("submit");
    executor.submit(decode(2, chosen(0))).expect("submit");
    let error = executor.submit(decode(3, chosen(0))).expect_err("a third");
    assert!(!error.fatal && error.message == "step 3: step 1 has not been collected", "{error}");
    assert_eq!(token(executor.collect()), golden.greedy[0][3]);
    executor.submit(decode(3, chosen(0))).expect("submit");
    assert_eq!([token(executor.collect()), token(executor.collect())], golden.greedy[0][4..6]);
    assert!(delay.followed.load(Ordering::Relaxed) > 0);

    let mut lost = decode(4, 1);
    lost.entries[0].slot = SlotId(3);
    executor.submit(lost).expect("submit");
    executor.submit(decode(5, chosen(0))).expect("submit");
    let errors = [executor.collect(), executor.collect()].map(|result| result.expect_err("lost"));
    assert!(errors[0].message.contains("slot 3 continues a sequence that has not begun"), "{}", errors[0]);
    assert!(errors[1].message.contains("entry 0 of the step before, which was lost, has no token"), "{}", errors[1]);
    assert!(errors.iter().all(|error| !error.fatal));
    executor.submit(decode(4, golden.greedy[0][5])).expect("submit");
    assert_eq!(token(executor.collect()), golden.greedy[0][6], "the executor still works");
}

/// Too few pages: sequences are preempted and computed again, and some are aborted, with two steps in flight.
#[test]
fn preemptions_and_aborts() {
    let golden = Golden::open("eagle3-tiny");
    let mut numbers = Numbers(5);
    let greedy = SamplingParams { temperature: 0.0, max_tokens: 48, ..SamplingParams::default() };
    let requests: Vec<_> = (0..40).map(|_| (numbers.prompt(&golden, 30), greedy.clone())).collect();
    let expected = Served::start(&golden, 1, capacity(128), None).answer(&requests);
    let (mut served, followed) = delayed(&golden, capacity(20), 30);
    let running: Vec<_> = requests.iter().map(|(prompt, params)| served.submit(prompt, params)).collect();
    for (id, _) in running.iter().skip(3).step_by(7) {
        std::thread::sleep(Duration::from_millis(15));
        served.engine.abort(*id);
    }
    for (number, (_, events)) in running.iter().enumerate() {
        let (output, whole) = (&collect(1, events)[0], &expected[number]);
        if number % 7 == 3 {
            assert_eq!(output.tokens, whole.tokens[..output.tokens.len()], "prompt {number} as far as it came");
        } else {
            assert_eq!(output, whole, "prompt {number}");
        }
    }
    let stats = served.stats();
    assert!(stats.preemptions > 0 && followed.load(Ordering::Relaxed) > 20, "{stats:?}");
    assert_eq!((stats.integrity_failures, stats.pages_used), (0, 0));
}
