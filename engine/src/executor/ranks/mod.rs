//! The executor that runs a model on one or more ranks, a thread each.

mod check;
mod choice;
mod config;
mod input;
mod thread;
mod wait;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

pub use config::{LoadProgress, RankFactory, RanksConfig, Speculation, StartError};
use thread::{RankThread, Reply};

use super::{Capacity, Executor, ExecutorError};
use crate::spec::Agreement;
use crate::types::{Batch, Patience, StepOutput};

/// How long a dropped executor waits for its threads where something went wrong; one that has stalled is left behind.
const FAREWELL: Duration = Duration::from_secs(2);
/// The same where nothing did: they only free what they have, and a process that ends meanwhile can crash on its way out.
const ORDERLY: Duration = Duration::from_secs(8);

/// Runs steps on every rank. Steps go to all ranks; each computes its share, and rank 0 chooses the tokens.
pub struct RanksExecutor {
    capacity: Capacity,
    /// Tokens of the widest verify entry; 0 without a draft model.
    verify_tokens: usize,
    step_deadline: Duration,
    spin: Duration,
    steps: Vec<Sender<Arc<Batch>>>,
    replies: Receiver<(usize, Reply)>,
    poison: Box<dyn Fn(&str) + Send>,
    /// Most steps in flight.
    depth: usize,
    /// Their numbers.
    in_flight: VecDeque<u64>,
    /// Entries of the last step that was submitted.
    entries: usize,
    /// Why no further step can run.
    failure: Option<String>,
}

impl RanksExecutor {
    /// Starts the ranks' threads, loads the model on each and returns when all are ready. `progress` is called on the
    /// ranks' threads.
    pub fn start<F: RankFactory>(
        factory: F,
        config: RanksConfig,
        progress: impl Fn(LoadProgress) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        config.check()?;
        let (capacity, verify_tokens, step_deadline) = (config.capacity, config.verify_tokens(), config.step_deadline);
        let depth = if factory.runs_alone() && factory.world_size() == 1 { 2 } else { 1 };
        let (factory, config) = (Arc::new(factory), Arc::new(config));
        let progress: Arc<dyn Fn(LoadProgress) + Send + Sync> = Arc::new(progress);
        let (sender, replies) = mpsc::channel();
        let mut steps = Vec::new();
        let agreements = Agreement::group(factory.world_size(), step_deadline);
        for (rank, agreement) in agreements.into_iter().enumerate() {
            let (step_sender, steps_of_rank) = mpsc::channel();
            let thread = RankThread {
                factory: Arc::clone(&factory),
                config: Arc::clone(&config),
                rank,
                progress: Arc::clone(&progress),
                steps: steps_of_rank,
                replies: sender.clone(),
            };
            let builder = std::thread::Builder::new().name(format!("rank {rank}"));
            builder.spawn(move || thread.run(agreement)).map_err(StartError::Thread)?;
            steps.push(step_sender);
        }
        // Only the threads hold ends now: the last one that is gone closes the channel, and nobody waits for more.
        drop(sender);
        let poison = Box::new(move |message: &str| factory.poison(message));
        let executor = Self {
            capacity,
            verify_tokens,
            step_deadline,
            spin: F::SPIN,
            steps,
            replies,
            poison,
            depth,
            in_flight: VecDeque::new(),
            entries: 0,
            failure: None,
        };
        executor.wait_until_ready()?;
        Ok(executor)
    }

    /// Loading has no deadline: it ends when every rank has loaded or failed.
    fn wait_until_ready(&self) -> Result<(), StartError> {
        for _ in 0..self.steps.len() {
            match self.replies.recv() {
                Ok((_, Reply::NotReady(error))) => return Err(error),
                Ok(_) => {}
                Err(_) => return Err(StartError::Thread(io::Error::other("a rank ended without a word"))),
            }
        }
        Ok(())
    }

    /// The output of the step in flight, once every rank has replied. The patience begins here: a step that follows another
    /// has waited for it.
    fn wait(&self, step: u64) -> Result<StepOutput, ExecutorError> {
        let mut patience = Patience::new(self.step_deadline);
        let mut waiting: Vec<usize> = (0..self.steps.len()).collect();
        let mut result = Ok(StepOutput::default());
        while !waiting.is_empty() {
            let received = wait::receive_patiently(&self.replies, self.spin, &mut patience);
            let (rank, reply) = received.map_err(|_| self.stalled(step, &waiting))?;
            waiting.retain(|other| *other != rank);
            match reply {
                Reply::Step(Some(output)) => result = Ok(output),
                Reply::Step(None) | Reply::Ready => {}
                Reply::Lost(message) => result = Err(failed(step, &message, false)),
                Reply::Failed(message) => return Err(failed(step, &message, true)),
                Reply::NotReady(error) => return Err(failed(step, &error.to_string(), true)),
            }
        }
        result
    }

    fn stalled(&self, step: u64, ranks: &[usize]) -> ExecutorError {
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        let seconds = self.step_deadline.as_secs_f64();
        failed(step, &format!("rank {} stalled: no result within {seconds:.1} s", ranks.join(", ")), true)
    }

    fn usable(&self) -> Result<(), ExecutorError> {
        let failure = self.failure.clone();
        failure.map_or(Ok(()), |message| Err(ExecutorError { message, fatal: true }))
    }

    /// Remembers a fatal error, and frees the ranks that wait for one that is gone.
    fn note(&mut self, error: &ExecutorError) {
        if error.fatal {
            (self.poison)(&error.message);
            self.failure = Some(error.message.clone());
        }
    }
}

impl Executor for RanksExecutor {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, batch: Batch) -> Result<(), ExecutorError> {
        self.usable()?;
        if let Some(step) = self.in_flight.front().filter(|_| self.in_flight.len() >= self.depth) {
            return Err(failed(batch.step, &format!("step {step} has not been collected"), false));
        }
        check::check(&batch, &self.capacity, self.verify_tokens, self.entries)?;
        self.entries = batch.entries.len();
        self.in_flight.push_back(batch.step);
        let batch = Arc::new(batch);
        for steps in &self.steps {
            // A rank that is gone has said why, and `collect` hears it.
            let _ = steps.send(Arc::clone(&batch));
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<StepOutput, ExecutorError> {
        self.usable()?;
        let message = "collect without a step in flight".to_owned();
        let step = self.in_flight.pop_front().ok_or(ExecutorError { message, fatal: false })?;
        let result = self.wait(step);
        if let Err(error) = &result {
            self.note(error);
        }
        result
    }
}

impl Drop for RanksExecutor {
    fn drop(&mut self) {
        // Between steps no rank waits for another, and a group that is whole is taken down in order.
        let orderly = self.in_flight.is_empty() && self.failure.is_none();
        if !orderly {
            (self.poison)("the executor is shutting down");
        }
        self.steps.clear();
        let until = Instant::now() + if orderly { ORDERLY } else { FAREWELL };
        // Every thread drops its end when it is done.
        while self.replies.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

fn failed(step: u64, message: &str, fatal: bool) -> ExecutorError {
    ExecutorError { message: format!("step {step}: {message}"), fatal }
}
