//! A rank's thread: load, then steps until the executor is gone. Whatever ends it early is told to the other ranks and
//! to the executor.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use super::config::{LoadProgress, RankFactory, RanksConfig, StartError};
use super::wait;
use super::worker::{Worker, WorkerError};
use crate::spec::Agreement;
use crate::types::{Batch, StepOutput};

/// What a rank tells the executor.
pub(super) enum Reply {
    Ready,
    NotReady(StartError),
    /// The output of rank 0; none of the others.
    Step(Option<StepOutput>),
    /// The step gave nothing, the rank goes on.
    Lost(String),
    /// The rank is gone.
    Failed(String),
}

pub(super) struct RankThread<F: RankFactory> {
    pub factory: Arc<F>,
    pub config: Arc<RanksConfig>,
    pub rank: usize,
    pub progress: Arc<dyn Fn(LoadProgress) + Send + Sync>,
    pub steps: Receiver<Arc<Batch>>,
    pub replies: Sender<(usize, Reply)>,
}

impl<F: RankFactory> RankThread<F> {
    /// `agreement` is dropped last: threads that wait for this rank's decisions have heard its error by then.
    pub fn run(self, mut agreement: Agreement) {
        let (rank, progress) = (self.rank, &*self.progress);
        let load = || Worker::load(&*self.factory, &self.config, rank, progress);
        let worker = match catch_unwind(AssertUnwindSafe(load)) {
            Ok(Ok(worker)) => worker,
            Ok(Err(error)) => return self.not_ready(StartError::Model { rank, error }),
            Err(panic) => return self.not_ready(StartError::Panic { rank, message: panic_text(&*panic) }),
        };
        self.reply(Reply::Ready);
        let serve = || self.serve(worker, &mut agreement);
        match catch_unwind(AssertUnwindSafe(serve)) {
            Ok(Ok(())) => {}
            // The other ranks have this message already if it came from a collective; poisoning keeps the first.
            Ok(Err(message)) => self.fail(format!("rank {rank}: {message}")),
            Err(panic) => self.fail(format!("rank {rank} panicked: {}", panic_text(&*panic))),
        }
    }

    fn serve(&self, mut worker: Worker<F::Backend>, agreement: &mut Agreement) -> Result<(), String> {
        let mut next = None;
        // The executor drops its end when it is done.
        while let Some(batch) = next.take().or_else(|| wait::receive(&self.steps, F::SPIN).ok()) {
            if self.factory.runs_alone() && worker.launches(&batch) {
                next = self.launch(&mut worker, &batch)?;
            } else {
                self.answer(worker.run(&batch, agreement))?;
            }
        }
        Ok(())
    }

    /// Gives the device a step, and steps that follow on it while it works. Returns one that came and cannot.
    fn launch(&self, worker: &mut Worker<F::Backend>, batch: &Arc<Batch>) -> Result<Option<Arc<Batch>>, String> {
        if let Err(error) = worker.launch(batch) {
            self.answer(Err(error))?;
            return Ok(None);
        }
        while let Some(following) = self.while_working(worker)? {
            if !worker.launches(&following) {
                self.answer(worker.take())?;
                return Ok(Some(following));
            }
            let launched = worker.launch(&following);
            self.answer(worker.take())?;
            if let Err(error) = launched {
                self.answer(Err(error))?;
                return Ok(None);
            }
        }
        self.answer(worker.take())?;
        Ok(None)
    }

    /// The next step, if it comes before the device has done the one that it has.
    fn while_working(&self, worker: &mut Worker<F::Backend>) -> Result<Option<Arc<Batch>>, String> {
        loop {
            match worker.has_done() {
                Ok(false) => {}
                Ok(true) => return Ok(None),
                Err(WorkerError::Step(message)) => return Err(message),
                Err(WorkerError::Pass(error)) => return Err(error.to_string()),
            }
            match self.steps.try_recv() {
                Ok(batch) => return Ok(Some(batch)),
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
                Err(TryRecvError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Errors: this rank cannot go on.
    fn answer(&self, result: Result<Option<StepOutput>, WorkerError>) -> Result<(), String> {
        match result {
            Ok(output) => self.reply(Reply::Step(output)),
            Err(WorkerError::Step(message)) => self.reply(Reply::Lost(message)),
            Err(WorkerError::Pass(error)) => return Err(error.to_string()),
        }
        Ok(())
    }

    fn not_ready(&self, error: StartError) {
        self.factory.poison(&error.to_string());
        self.reply(Reply::NotReady(error));
    }

    fn fail(&self, message: String) {
        self.factory.poison(&message);
        self.reply(Reply::Failed(message));
    }

    /// An executor that is gone needs no reply.
    fn reply(&self, reply: Reply) {
        let _ = self.replies.send((self.rank, reply));
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
