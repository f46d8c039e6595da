//! What the ranks are made of.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, BackendError};
use crate::collective::{CallCounters, Collective, CollectivePlan};
use crate::executor::Capacity;
use crate::model::{Limits, ModelConfig, ModelError};
use crate::spec::{DraftShape, DrafterConfig, HeadCheckpoint};
use crate::weights::WeightSource;

/// Makes the ranks of one kind of device. Shared by the ranks' threads.
pub trait RankFactory: Send + Sync + 'static {
    type Backend: Backend;

    /// How long threads look for a message before they sleep until it comes. Waking a thread costs tens of
    /// microseconds, which is much of a step on a fast device; where the ranks compute on the processor itself, it is
    /// better left to them.
    const SPIN: Duration = Duration::ZERO;

    fn world_size(&self) -> usize;

    /// Whether the device works by itself, so that it is worth handing it a step whose tokens it has not chosen yet.
    fn runs_alone(&self) -> bool {
        false
    }

    /// Rank `rank`'s device; called once, on the rank's own thread.
    fn backend(&self, rank: usize) -> Result<Self::Backend, BackendError>;

    /// Rank `rank`'s place in the group, called once; never for a single rank.
    fn collective(
        &self,
        rank: usize,
        backend: &mut Self::Backend,
    ) -> Result<Box<dyn Collective<Self::Backend>>, BackendError>;

    /// Makes every rank that waits for another return an error that holds `message`, now and from now on.
    fn poison(&self, message: &str);
}

/// Speculation with a draft model.
#[derive(Clone)]
pub struct Speculation {
    pub head: Arc<HeadCheckpoint>,
    /// The widest that is drafted; a batch may ask for less.
    pub shape: DraftShape,
}

/// What every rank runs.
#[derive(Clone)]
pub struct RanksConfig {
    pub model: Arc<ModelConfig>,
    pub weights: Arc<dyn WeightSource>,
    pub capacity: Capacity,
    /// Rows whose logits are computed at once: bounds the memory for prompt log-probabilities.
    pub logit_rows: usize,
    pub plan: Arc<CollectivePlan>,
    pub counters: Arc<CallCounters>,
    /// Longest time that a step may take on any rank. A rank that takes longer has stalled, and no further step runs.
    pub step_deadline: Duration,
    pub speculation: Option<Speculation>,
}

impl RanksConfig {
    /// Tokens of the widest verify entry; 0 without a draft model.
    pub(super) fn verify_tokens(&self) -> usize {
        self.speculation.as_ref().map_or(0, |speculation| speculation.shape.verify_tokens)
    }

    pub(super) fn drafter(&self, shape: DraftShape) -> DrafterConfig {
        let Capacity { pages, page_size, slots, rows, context, .. } = self.capacity;
        let [pages, page_size, slots, rows, context] =
            [pages, page_size, slots, rows, context].map(|size| size as usize);
        DrafterConfig { shape, pages, page_size, slots, rows, logit_rows: self.logit_rows, context }
    }

    /// Places for the device's choices: one for each row of logits, then those of drafted tokens.
    pub(super) fn choices(&self) -> usize {
        let drafted = self.speculation.as_ref().map(|speculation| self.drafter(speculation.shape).places().end);
        drafted.unwrap_or(self.logit_rows)
    }

    pub(super) fn limits(&self) -> Limits {
        let Capacity { rows, context, .. } = self.capacity;
        Limits { rows: rows as usize, logit_rows: self.logit_rows, context: context as usize }
    }

    /// Errors: a capacity with which no step could run.
    pub(super) fn check(&self) -> Result<(), StartError> {
        let Capacity { pages, page_size, slots, rows, context, vocabulary } = self.capacity;
        let sizes = [
            ("pages", pages as usize),
            ("page size", page_size as usize),
            ("slots", slots as usize),
            ("rows", rows as usize),
            ("context", context as usize),
            ("logit rows", self.logit_rows),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(StartError::Capacity(format!("{name} is 0")));
        }
        if let Some(Speculation { head, shape }) = &self.speculation {
            if shape.topk > head.config.vocabulary {
                let (topk, tokens) = (shape.topk, head.config.vocabulary);
                return Err(StartError::Capacity(format!("{topk} branches of a draft vocabulary of {tokens} tokens")));
            }
            if shape.verify_tokens > rows as usize {
                let tokens = shape.verify_tokens;
                return Err(StartError::Capacity(format!(
                    "{tokens} tokens to verify do not fit into {rows} rows a step"
                )));
            }
        }
        if vocabulary as usize != self.model.vocabulary {
            let actual = self.model.vocabulary;
            return Err(StartError::Capacity(format!("vocabulary is {vocabulary}, but the model has {actual} tokens")));
        }
        Ok(())
    }
}

/// Loading, for progress bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    pub rank: usize,
    pub layers_done: usize,
    pub layers: usize,
}

/// Why the ranks did not become ready.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("no step could run: {0}")]
    Capacity(String),
    #[error("rank {rank}: {error}")]
    Model { rank: usize, error: ModelError },
    #[error("rank {rank} panicked while it loaded: {message}")]
    Panic { rank: usize, message: String },
    #[error("a rank's thread cannot be started: {0}")]
    Thread(std::io::Error),
}
