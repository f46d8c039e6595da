//! The scheduler over the mock executor, whose answers depend on every page.

mod fairness;
mod properties;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::cache::{CacheConfig, CacheGroup, PAGE_SIZE};
use crate::executor::Executor;
use crate::mock::{Answer, MockConfig, MockExecutor, answer};
use crate::types::{
    Batch, FinishReason, Request, RequestId, Sampling, SamplingParams, StepOutput, TokenLogprobs, TokenOutput, chosen,
};

const VOCABULARY: u32 = 24;
const END: u32 = 0;

#[derive(Clone, Debug)]
struct Setting {
    pages: u32,
    slots: u32,
    rows: u32,
    max_prefill_rows: u32,
    context: u32,
    prefix_cache: bool,
    draft_group: bool,
    verify_tokens: u32,
    overlap: bool,
    /// With overlap: steps follow on steps in flight wherever they can.
    following: bool,
}

impl Setting {
    fn ample() -> Self {
        Self {
            pages: 200,
            slots: 16,
            rows: 64,
            max_prefill_rows: 0,
            context: 1000,
            prefix_cache: true,
            draft_group: false,
            verify_tokens: 0,
            overlap: false,
            following: false,
        }
    }

    fn usable_context(&self) -> u32 {
        self.context.min(self.pages * PAGE_SIZE as u32)
    }
}

/// What came out of one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
struct Output {
    tokens: Vec<TokenOutput>,
    prompt_logprobs: Vec<TokenLogprobs>,
    finish: Option<FinishReason>,
}

/// Scheduler and executor, stepped by hand; audits the books after every step.
struct Harness {
    setting: Setting,
    scheduler: Scheduler,
    executor: MockExecutor,
    prepared: Option<Plan>,
    /// A step that follows on the one before is in flight.
    following: bool,
    outputs: BTreeMap<SequenceId, Output>,
    expected: BTreeMap<SequenceId, Sampling>,
    /// The batch of the last step, how many steps there were, and how many of them followed on one in flight.
    last: Batch,
    steps: usize,
    followed: usize,
}

impl Harness {
    fn new(setting: Setting) -> Self {
        let mut groups = vec![CacheGroup::TARGET];
        groups.extend(setting.draft_group.then_some(CacheGroup { name: "draft", needs_next_token: true }));
        let config = SchedulerConfig {
            cache: CacheConfig { pages: setting.pages, groups },
            slots: setting.slots,
            rows: setting.rows,
            max_prefill_rows: setting.max_prefill_rows,
            context: setting.usable_context(),
            vocabulary: VOCABULARY,
            end_tokens: Arc::from([END]),
            prefix_cache: setting.prefix_cache,
            verify_tokens: setting.verify_tokens,
        };
        let mock = MockConfig::new(setting.pages, setting.slots, setting.rows, setting.usable_context(), VOCABULARY);
        Self {
            scheduler: Scheduler::new(config),
            executor: MockExecutor::new(mock),
            prepared: None,
            following: false,
            outputs: BTreeMap::new(),
            expected: BTreeMap::new(),
            last: Batch::default(),
            steps: 0,
            followed: 0,
            setting,
        }
    }

    fn submit(&mut self, prompt: Vec<u32>, params: SamplingParams) -> Vec<SequenceId> {
        self.submit_as(prompt, params, 0, None)
    }

    fn submit_as(
        &mut self,
        prompt: Vec<u32>,
        params: SamplingParams,
        priority: i32,
        salt: Option<&str>,
    ) -> Vec<SequenceId> {
        let id = RequestId(self.expected.len() as u64);
        let (prompt, params): (Arc<[u32]>, _) = (prompt.into(), Arc::new(params));
        let request = Request { id, prompt, params, priority, cache_salt: salt.map(Arc::from) };
        let ids = self.scheduler.submit(&request);
        for (id, choice) in ids.iter().zip(0..) {
            let mut end_tokens = request.params.stop_token_ids.clone();
            end_tokens.extend((!request.params.ignore_eos).then_some(END));
            let (prompt, params) = (request.prompt.clone(), request.params.clone());
            self.expected
                .insert(*id, Sampling { params, prompt, output: vec![], choice, end_tokens: end_tokens.into() });
            self.outputs.insert(*id, Output::default());
        }
        ids
    }

    /// One step, if there is anything to do.
    fn step(&mut self) {
        if !std::mem::take(&mut self.following) {
            let plan = self.prepared.take().unwrap_or_else(|| self.scheduler.plan());
            let Some(batch) = self.scheduler.launch(plan) else { return self.audit() };
            self.begin(batch);
        }
        if self.setting.overlap {
            let plan = self.scheduler.plan();
            self.audit();
            if self.setting.following && self.scheduler.follows(&plan) {
                let batch = self.scheduler.launch_following(plan).unwrap();
                self.begin(batch);
                self.following = true;
                self.followed += 1;
            } else {
                self.prepared = Some(plan);
            }
            self.audit();
        }
        let output = self.executor.collect().unwrap();
        self.commit(&output);
        self.audit();
    }

    fn begin(&mut self, batch: Batch) {
        self.last = batch.clone();
        self.steps += 1;
        self.executor.submit(batch).unwrap();
    }

    fn commit(&mut self, output: &StepOutput) {
        for progress in self.scheduler.commit(output).unwrap() {
            let entry = &output.entries[progress.entry];
            let own = self.outputs.get_mut(&progress.sequence).unwrap();
            assert_eq!(own.finish, None, "a finished sequence advanced");
            own.tokens.extend_from_slice(&entry.tokens[..progress.tokens]);
            own.prompt_logprobs.extend_from_slice(&entry.prompt_logprobs[progress.prompt_logprobs]);
            own.finish = progress.finish;
        }
    }

    fn audit(&self) {
        self.scheduler.check_integrity().unwrap();
        assert_eq!(self.scheduler.stats().integrity_failures, 0);
    }

    fn abort(&mut self, id: SequenceId) {
        if self.scheduler.finish(id) {
            self.outputs.get_mut(&id).unwrap().finish = Some(FinishReason::Abort);
        }
        self.audit();
    }

    /// Steps until everything has ended; fails when that takes more than `limit` steps.
    fn run(&mut self, limit: usize) {
        let mut rounds = 0;
        while !self.scheduler.is_idle() {
            self.step();
            rounds += 1;
            assert!(rounds <= limit, "not done after {limit} steps: {:?}", self.scheduler.stats());
        }
    }

    /// Everything that ended has the right output, and nothing is left behind.
    fn assert_answers(&self) {
        for (id, output) in &self.outputs {
            let sampling = &self.expected[id];
            let Answer { tokens, reason } = answer(sampling, self.setting.usable_context(), VOCABULARY);
            if output.finish == Some(FinishReason::Abort) {
                assert_eq!(output.tokens, tokens[..output.tokens.len()], "sequence {}", id.0);
                continue;
            }
            assert_eq!(output.tokens, tokens, "sequence {}", id.0);
            assert_eq!(output.finish, Some(reason));
            let wanted = sampling.params.prompt_logprobs.filter(|_| sampling.choice == 0);
            let rows = wanted.map_or(0, |_| sampling.prompt.len() - 1);
            assert_eq!(output.prompt_logprobs.len(), rows);
            for (logprobs, position) in output.prompt_logprobs.iter().zip(1..) {
                assert_eq!(
                    (logprobs.logprob, logprobs.rank),
                    (-(sampling.prompt[position] as f32), position as u32 + 1)
                );
            }
        }
        assert!(self.scheduler.is_idle());
        let usage = self.scheduler.stats().usage;
        assert_eq!(usage.held, 0, "pages leaked");
        self.audit();
    }
}

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { temperature: 0.0, ignore_eos: true, max_tokens, ..Default::default() }
}

fn prompt(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|at| (at * 7 + seed * 5 + at * at * seed) % VOCABULARY).collect()
}
