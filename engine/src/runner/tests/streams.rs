//! What a client sees.

use super::*;

#[test]
fn concurrent_requests_get_their_own_answers() {
    for overlap in [false, true] {
        let engine = start(mock(), config(overlap));
        let requests: Vec<Request> = (0..40)
            .map(|seed| {
                let params =
                    SamplingParams { temperature: 1.0, seed, logprobs: Some(2), ..greedy(seed as u32 % 30 + 1) };
                request((0..seed as u32 * 3 % 70 + 1).map(|at| (at * 11 + seed as u32) % VOCABULARY), params)
            })
            .collect();
        let receivers: Vec<_> = requests.iter().map(|request| submit(&engine, request)).collect();
        for (request, receiver) in requests.iter().zip(&receivers) {
            assert_eq!(outputs(&events(receiver)), [expected(request, 0)]);
        }
        assert_eq!(engine.drain(PATIENCE), 0);
        assert_empty(&engine);
    }
}

#[test]
fn several_outputs_come_with_their_index_and_share_the_prompt() {
    let engine = start(mock(), config(true));
    let request =
        request((0..40).map(|at| at % VOCABULARY), SamplingParams { n: 3, temperature: 0.7, seed: 5, ..greedy(12) });
    let answers = outputs(&events(&submit(&engine, &request)));
    assert_eq!(answers, [expected(&request, 0), expected(&request, 1), expected(&request, 2)]);
    engine.drain(PATIENCE);
    assert_eq!(engine.stats().prompt_tokens, 40);
    assert_eq!(engine.stats().generation_tokens, answers.iter().map(|output| output.tokens.len() as u64).sum::<u64>());
}

#[test]
fn a_stop_string_ends_the_output_at_its_token() {
    for overlap in [false, true] {
        let engine = start(mock(), config(overlap));
        let free = expected(&request([3, 4, 5], endless(40)), 0);
        let ids = free.ids();
        let stop = format!("{} {} ", ids[9], ids[10]);
        let params = SamplingParams { stop: vec!["never".into(), stop], ..endless(40) };
        let output = &outputs(&events(&submit(&engine, &request([3, 4, 5], params))))[0];
        assert_eq!(output.ids(), ids[..11]);
        assert_eq!(output.text, ids[..10].iter().map(|id| format!("{id} ")).collect::<String>());
        assert_eq!(output.reason(), Some(FinishReason::Stop));
        assert_eq!(output.finish.unwrap().1.completion_tokens, 11);
        engine.drain(PATIENCE);
        assert_empty(&engine);
    }
}

/// A verify entry brings several tokens at once.
#[test]
fn a_stop_string_among_several_tokens_cuts_the_rest_off() {
    use crate::runner::request::OutputState;
    let token = |id| TokenOutput { id, logprobs: None };
    let (stop, length) = (Some(FinishReason::Stop), Some(FinishReason::Length));
    let cases = [
        ("2 3 ", None, vec![1, 2, 3], "1 2 ", stop),
        ("2 3 ", length, vec![1, 2, 3], "1 2 ", stop),
        ("9 ", stop, vec![1, 2, 3, END], "1 2 3 end", stop),
        ("9 ", None, vec![1, 2, 3, END], "1 2 3 0 ", None),
    ];
    for (string, ended, kept, expected, finish) in cases {
        let decoder = Box::new(Numbers { stop: vec![string.to_owned()], text: String::new() });
        let (admitted, first_token, last_token) = (None, None, None);
        let mut output =
            OutputState { request: RequestId(0), index: 0, decoder, tokens: 0, admitted, first_token, last_token };
        let (mut tokens, mut text) = ([1, 2, 3, END].map(token).to_vec(), String::new());
        assert_eq!(output.decode(&mut tokens, ended, &mut text), finish);
        assert_eq!((tokens, text.as_str()), (kept.into_iter().map(token).collect(), expected));
    }
}

#[test]
fn an_end_token_is_counted_and_has_no_text() {
    let engine = start(mock(), config(true));
    let ends = (0..200)
        .map(|seed| request([seed % VOCABULARY, seed / VOCABULARY], greedy(300)))
        .find(|request| (3..50).contains(&expected(request, 0).tokens.len()))
        .expect("some prompt ends early");
    let output = &outputs(&events(&submit(&engine, &ends)))[0];
    assert_eq!(output.reason(), Some(FinishReason::Stop));
    assert_eq!(output.ids().last(), Some(&END));
    assert!(!output.text.contains("0 end"), "{}", output.text);
    assert_eq!(output, &expected(&ends, 0));
}

#[test]
fn prompt_logprobs_come_first_one_per_prompt_token() {
    let engine = start(mock(), EngineConfig { max_prefill_rows: 7, ..config(true) });
    for length in [1, 2, 40] {
        let params = SamplingParams { prompt_logprobs: Some(1), n: 2, ..greedy(3) };
        let request = request((0..length).map(|at| at * 3 % VOCABULARY), params);
        let events = events(&submit(&engine, &request));
        let RequestEvent::PromptLogprobs(logprobs) = &events[0] else { panic!("{:?}", events[0]) };
        assert_eq!(logprobs.len(), length as usize);
        assert_eq!(logprobs[0], None);
        for (position, (logprob, token)) in logprobs.iter().zip(request.prompt.iter()).enumerate().skip(1) {
            let TokenLogprobs { logprob, rank, top } = logprob.as_ref().unwrap();
            assert_eq!((*logprob, *rank, top.len()), (-(*token as f32), position as u32 + 1, 1));
        }
        assert_eq!(events.iter().filter(|event| matches!(event, RequestEvent::PromptLogprobs(_))).count(), 1);
    }
}

#[test]
fn cached_tokens_are_reported() {
    let engine = start(mock(), config(true));
    let prompt = || (0..50).map(|at| at * 7 % VOCABULARY);
    let cached = |engine: &Engine| {
        let events = events(&submit(engine, &request(prompt(), greedy(2))));
        outputs(&events)[0].finish.unwrap().1.cached_tokens
    };
    assert_eq!([cached(&engine), cached(&engine), cached(&engine)], [0, 48, 48]);
    let stats = engine.stats();
    assert_eq!((stats.prefix_queries, stats.prefix_hits), (150, 96));
}

#[test]
fn observations_tell_the_life_of_each_output() {
    let recorder = Arc::new(Recorder::default());
    let executor = Box::new(MockExecutor::new(mock()));
    let engine = Engine::start(executor, Arc::new(NoText), recorder.clone(), config(true)).unwrap();
    let requests: Vec<Request> = (1..5).map(|seed| request([seed, 7], endless(10))).collect();
    let receivers: Vec<_> = requests.iter().map(|request| submit(&engine, request)).collect();
    receivers.iter().for_each(|receiver| drop(events(receiver)));
    engine.drain(PATIENCE);
    let observations = recorder.0.lock().unwrap();
    let count = |wanted: fn(&Observation) -> bool| observations.iter().filter(|seen| wanted(seen)).count();
    assert_eq!(count(|seen| matches!(seen, Observation::FirstToken { .. })), 4);
    assert_eq!(count(|seen| matches!(seen, Observation::InterToken { tokens: 1, .. })), 4 * 9);
    assert_eq!(count(|seen| matches!(seen, Observation::Step { .. })) as u64, engine.stats().steps);
    let rows: u32 = observations
        .iter()
        .map(|seen| match seen {
            Observation::Step { prefill_rows, decode_rows, .. } => prefill_rows + decode_rows,
            _ => 0,
        })
        .sum();
    assert_eq!(rows, 4 * (2 + 9));
    for seen in observations.iter() {
        let Observation::Output(times) = seen else { continue };
        assert_eq!(times.outcome, Outcome::Finished(FinishReason::Length));
        let parts = times.queue.unwrap() + times.prefill.unwrap() + times.decode.unwrap();
        assert!(parts <= times.end_to_end + 1e-6, "{times:?}");
        assert_eq!(times.usage.completion_tokens, 10);
    }
    assert_eq!(count(|seen| matches!(seen, Observation::Output(_))), 4);
}
