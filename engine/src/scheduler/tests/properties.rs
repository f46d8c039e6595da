//! Whatever is submitted and aborted in whatever setting: right answers, no leak, no starvation.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Job {
    arrival: usize,
    family: u32,
    shared: usize,
    own: usize,
    priority: i32,
    salt: bool,
    params: SamplingParams,
    /// Steps after arrival at which it is aborted.
    abort: Option<usize>,
    /// Tokens to verify from its arrival on.
    verify: Option<u32>,
}

impl Job {
    fn prompt(&self, context: u32) -> Vec<u32> {
        let mut tokens = prompt(self.family, self.shared);
        tokens.extend(prompt(self.family + 100 + self.own as u32, self.own));
        tokens.truncate(context as usize - 1);
        tokens
    }

    fn salt(&self) -> Option<&'static str> {
        self.salt.then_some("tenant")
    }
}

fn setting() -> impl Strategy<Value = Setting> {
    let sizes = (1..40u32, 1..8u32, 1..40u32, 0..20u32, 2..400u32);
    let overlaps = prop_oneof![Just((false, false)), Just((true, false)), Just((true, true))];
    let switches = (any::<bool>(), any::<bool>(), prop_oneof![Just(0), 2..24u32], overlaps);
    (sizes, switches).prop_map(|(sizes, (prefix_cache, draft_group, verify_tokens, (overlap, following)))| {
        let (pages, slots, rows, max_prefill_rows, context) = sizes;
        let draft_group = draft_group && verify_tokens > 0;
        Setting {
            pages,
            slots,
            rows,
            max_prefill_rows,
            context,
            prefix_cache,
            draft_group,
            verify_tokens,
            overlap,
            following,
        }
    })
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let numbers = (1..60u32, 0..12u32, 1..4u32, any::<u64>());
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
    (numbers, switches).prop_map(|((max_tokens, min_tokens, n, seed), (greedy, ignore_eos, logprobs, prompt))| {
        SamplingParams {
            temperature: if greedy { 0.0 } else { 1.0 },
            seed,
            n,
            max_tokens,
            min_tokens,
            ignore_eos,
            stop_token_ids: vec![5],
            logprobs: logprobs.then_some(2),
            prompt_logprobs: prompt.then_some(1),
            ..Default::default()
        }
    })
}

fn job() -> impl Strategy<Value = Job> {
    let text = (0..3u32, 0..120usize, 1..50usize);
    let abort = prop::option::weighted(0.25, 0..40usize);
    let verify = prop::option::weighted(0.3, 0..8u32);
    (0..40usize, text, -1..2i32, prop::bool::weighted(0.2), params(), abort, verify).prop_map(
        |(arrival, (family, shared, own), priority, salt, params, abort, verify)| Job {
            arrival,
            family,
            shared,
            own,
            priority,
            salt,
            params,
            abort,
            verify,
        },
    )
}

/// Runs the jobs; returns the outputs of each job in order.
fn serve(setting: &Setting, jobs: &[Job]) -> Vec<Vec<Output>> {
    let mut harness = Harness::new(setting.clone());
    let mut ids: Vec<Vec<SequenceId>> = vec![Vec::new(); jobs.len()];
    let last = jobs.iter().map(|job| job.arrival + job.abort.unwrap_or(0)).max().unwrap_or(0);
    for step in 0..=last {
        for (job, ids) in jobs.iter().zip(&mut ids) {
            if job.arrival == step {
                let prompt = job.prompt(setting.usable_context());
                *ids = harness.submit_as(prompt, job.params.clone(), job.priority, job.salt());
                ids.iter().for_each(|id| {
                    job.verify.into_iter().for_each(|tokens| harness.scheduler.set_verify_tokens(*id, tokens));
                });
            }
            if job.abort.is_some_and(|after| job.arrival + after == step) {
                ids.iter().for_each(|id| harness.abort(*id));
            }
        }
        harness.step();
    }
    // In the worst case one sequence runs at a time, one row a step, and is preempted now and then.
    let work: usize = harness.expected.values().map(|own| own.prompt.len() + own.params.max_tokens as usize).sum();
    harness.run(20 * work + 100);
    harness.assert_answers();
    ids.iter().map(|ids| ids.iter().map(|id| harness.outputs[id].clone()).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_interleaving_answers_right_and_leaks_nothing(setting in setting(), jobs in prop::collection::vec(job(), 1..12)) {
        serve(&setting, &jobs);
    }

    /// The same job alone in an ample setting and among others in a tight one.
    #[test]
    fn answers_are_equal_alone_and_in_a_batch(setting in setting(), jobs in prop::collection::vec(job(), 1..10)) {
        let jobs: Vec<Job> = jobs.into_iter().map(|job| Job { abort: None, ..job }).collect();
        let context = setting.usable_context();
        let together = serve(&setting, &jobs);
        for (job, together) in jobs.iter().zip(&together) {
            let alone = Setting { context, pages: 100, ..Setting::ample() };
            prop_assert_eq!(&serve(&alone, &[Job { arrival: 0, ..job.clone() }])[0], together);
        }
    }
}
