//! Two steps in flight: what a client sees is the same.

use super::*;

/// Ends by a token, a string, a length and an abort, and a thousand tokens of others beside them.
#[test]
fn a_client_cannot_tell() {
    let mut seen = Vec::new();
    for depth in [1, 2] {
        let engine = start(MockConfig { depth, step_delay: Duration::from_micros(200), ..mock() }, config(true));
        let free = expected(&request([3, 4, 5], endless(40)), 0).ids();
        let stop = SamplingParams { stop: vec![format!("{} {} ", free[9], free[10])], ..endless(40) };
        let requests: Vec<Request> = (0..30)
            .map(|seed| match seed % 3 {
                0 => request([3, 4, 5], stop.clone()),
                1 => request([seed, 7], SamplingParams { temperature: 1.0, seed: u64::from(seed), ..greedy(60) }),
                _ => request([seed], endless(seed + 1)),
            })
            .collect();
        let receivers: Vec<_> = requests.iter().map(|request| submit(&engine, request)).collect();
        seen.push(receivers.iter().map(|receiver| outputs(&events(receiver))).collect::<Vec<_>>());
        engine.drain(PATIENCE);
        let stats = engine.stats();
        let tokens: usize = seen[depth - 1].iter().flatten().map(|output| output.tokens.len()).sum();
        assert_eq!(stats.generation_tokens, tokens as u64);
        assert_eq!(stats.following_steps > 20, depth == 2, "{stats:?}");
        assert_empty(&engine);
    }
    assert_eq!(seen[0], seen[1]);
    let reasons: Vec<_> = seen[0].iter().flatten().filter_map(Output::reason).collect();
    assert!(reasons.contains(&FinishReason::Stop) && reasons.contains(&FinishReason::Length));
}

/// The time of a step is its own: a step that follows does not count the one before it.
#[test]
fn times_of_steps_do_not_overlap() {
    let recorder = Arc::new(Recorder::default());
    let executor = Box::new(MockExecutor::new(MockConfig { step_delay: Duration::from_millis(4), ..mock() }));
    let begun = std::time::Instant::now();
    let engine = Engine::start(executor, Arc::new(NumbersPipeline), recorder.clone(), config(true)).unwrap();
    events(&submit(&engine, &request([1], endless(30))));
    engine.drain(PATIENCE);
    let whole = begun.elapsed().as_secs_f64();
    assert!(engine.stats().following_steps > 20);
    let observed = recorder.0.lock().unwrap();
    let seconds = observed.iter().filter_map(|observation| match observation {
        Observation::Step { seconds, .. } => Some(*seconds),
        _ => None,
    });
    let together: f64 = seconds.sum();
    assert!(together <= whole && together > 0.1, "{together} s of {whole} s");
}
