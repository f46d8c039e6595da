//! One step of the engine, plain or overlapped.
//!
//! Plain: plan, run, send. Overlapped: while a step is in flight, the events of the step before are sent and the next
//! step is planned; an end by a stop string is then noticed one step late, and that step's token is dropped. Where the
//! executor takes two steps and the next one only continues with what this one chooses, it is submitted at once: the
//! device need not wait for the host between them, any end is noticed a step late, and a request that comes waits for both.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::worker::{Worker, panic_message};
use super::{Health, Observation};
use crate::executor::ExecutorError;
use crate::scheduler::{Plan, Progress, SequenceId};
use crate::spec::PacedStep;
use crate::types::{Batch, Phase, RequestFailure, RequestId, StepOutput};

/// A step between submit and collect.
pub(super) struct Submitted {
    /// When it was submitted, or when the step before it was done, if that was later.
    pub started: Instant,
    observation: Observation,
    width: Option<usize>,
    result: Result<(), ExecutorError>,
}

/// A step's output between its commit and its events.
pub(super) struct Collected {
    pub progress: Vec<Progress>,
    pub output: StepOutput,
    pub at: Instant,
}

impl Worker {
    pub(super) fn step(&mut self) {
        let planned_ahead = self.prepared.is_some();
        let Some(step) = self.following.take().or_else(|| self.launch()) else {
            return self.step_without_work(planned_ahead);
        };
        let Submitted { started, mut observation, width, result } = step;
        if self.shared.config.overlap {
            self.deliver();
            if result.is_ok() {
                self.receive_ready();
                self.prepare();
            }
        }
        match result.and_then(|()| guard(|| self.executor.collect())) {
            Ok(output) => {
                let now = Instant::now();
                if let Observation::Step { seconds, .. } = &mut observation {
                    *seconds = (now - started).as_secs_f64();
                }
                if let Some(following) = &mut self.following {
                    following.started = now;
                }
                self.observer.observe(&observation);
                self.measure(&observation, width, &output);
                self.commit(output);
            }
            Err(error) => self.fail_step(&error),
        }
        if !self.shared.config.overlap {
            self.deliver();
        }
        self.publish_stats();
    }

    /// The next step, with the one before it committed.
    fn launch(&mut self) -> Option<Submitted> {
        let plan = self.next_plan();
        let batch = self.scheduler.launch(plan)?;
        Some(self.submit(batch))
    }

    fn submit(&mut self, batch: Batch) -> Submitted {
        let (started, observation, width) = (Instant::now(), describe(&batch), width(&batch));
        Submitted { started, observation, width, result: guard(|| self.executor.submit(batch)) }
    }

    /// Plans the next step while one is in flight, and submits it where it can follow on that one.
    fn prepare(&mut self) {
        let plan = self.plan();
        if self.executor.depth() > 1 && self.scheduler.follows(&plan) {
            let batch = self.scheduler.launch_following(plan);
            self.counters.following_steps += u64::from(batch.is_some());
            self.following = batch.map(|batch| self.submit(batch));
        } else {
            self.prepared = Some(plan);
        }
    }

    fn next_plan(&mut self) -> Plan {
        match self.prepared.take() {
            Some(mut plan) => {
                // What came in while the step was in flight need not wait for another one.
                self.receive_ready();
                let known = plan.admitted.len();
                self.scheduler.top_up(&mut plan);
                self.note_admissions(&plan.admitted[known..]);
                plan
            }
            None => self.plan(),
        }
    }

    fn plan(&mut self) -> Plan {
        if let Some(mut pace) = self.shared.pace() {
            let width = pace.width(self.scheduler.stats().running);
            self.scheduler.set_all_verify_tokens(width as u32);
        }
        let plan = self.scheduler.plan();
        self.note_admissions(&plan.admitted);
        plan.preempted.iter().for_each(|_| self.observer.observe(&Observation::Preemption));
        plan
    }

    fn note_admissions(&mut self, admitted: &[SequenceId]) {
        if !admitted.is_empty() {
            let now = Instant::now();
            admitted.iter().for_each(|sequence| self.note_admission(*sequence, now));
        }
    }

    /// Everything planned has ended meanwhile. A fresh plan without work for waiting sequences is a defect, and would
    /// otherwise turn the thread into a busy loop.
    fn step_without_work(&mut self, planned_ahead: bool) {
        let sent = self.collected.is_some();
        self.deliver();
        if !sent && !planned_ahead && !self.scheduler.is_idle() {
            self.fail_all("the scheduler found no work although requests wait");
        }
        self.publish_stats();
    }

    fn commit(&mut self, output: StepOutput) {
        match self.scheduler.commit(&output) {
            Ok(progress) => self.collected = Some(Collected { progress, output, at: Instant::now() }),
            Err(error) => self.fail_step(&ExecutorError { message: error.to_string(), fatal: true }),
        }
    }

    /// Tells the pace what the step cost and brought.
    fn measure(&self, observation: &Observation, width: Option<usize>, output: &StepOutput) {
        let (Some(mut pace), Observation::Step { sequences, seconds, .. }) = (self.shared.pace(), observation) else {
            return;
        };
        let (sequences, seconds) = (*sequences as usize, *seconds);
        pace.observe(&PacedStep { sequences, width, seconds, timing: output.timing }, output.entries.iter());
    }

    /// Ends the requests of the failed step, or all of them if no further step can run.
    fn fail_step(&mut self, error: &ExecutorError) {
        tracing::error!(fatal = error.fatal, "{error}");
        let lost = self.scheduler.fail_step();
        if error.fatal && self.following.take().is_some() {
            // Nothing can be collected any more. Its sequences were in the failed step, too, or fail with all others.
            self.scheduler.fail_step();
        }
        // What the steps before brought is still due.
        self.deliver();
        if error.fatal {
            self.shared.set_health(Health::Failed(error.message.clone()));
            return self.fail_all(&error.message);
        }
        let requests: Vec<RequestId> =
            lost.iter().filter_map(|sequence| Some(self.outputs.get(sequence)?.request)).collect();
        requests.into_iter().for_each(|id| self.fail(id, RequestFailure::Engine(error.message.clone())));
    }

    fn fail_all(&mut self, message: &str) {
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        ids.into_iter().for_each(|id| self.fail(id, RequestFailure::Engine(message.to_owned())));
    }
}

fn describe(batch: &Batch) -> Observation {
    let rows = |prefill: bool| {
        let entries = batch.entries.iter().filter(|entry| (entry.phase == Phase::Prefill) == prefill);
        entries.map(|entry| (entry.tokens.len() as u32).max(entry.verify_tokens)).sum()
    };
    let sequences = batch.entries.len() as u32;
    Observation::Step { prefill_rows: rows(true), decode_rows: rows(false), sequences, seconds: 0.0 }
}

/// Tokens that each entry verifies, 1 for plain decodes; none if prompts are among them, or different widths.
fn width(batch: &Batch) -> Option<usize> {
    let mut widths = batch.entries.iter().map(|entry| match entry.phase {
        Phase::Prefill | Phase::Draft => None,
        Phase::Decode => Some(1),
        Phase::Verify => Some(entry.verify_tokens as usize),
    });
    let first = widths.next()??;
    widths.all(|width| width == Some(first)).then_some(first)
}

/// A panic of the executor is a failure for good: nobody knows in which state it is.
fn guard<T>(call: impl FnOnce() -> Result<T, ExecutorError>) -> Result<T, ExecutorError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = format!("the executor panicked: {}", panic_message(&*panic));
        Err(ExecutorError { message, fatal: true })
    })
}
