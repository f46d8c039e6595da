//! What runs at which site: plain data that `plan` fills in.

use std::fmt;
use std::sync::Arc;

use crate::types::Phase;

/// A place in the forward pass where ranks meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    AttentionOutput,
    MlpOutput,
    Embedding,
    LogitsGather,
    /// Inside the draft model.
    Draft,
}

impl Site {
    pub const ALL: [Self; 5] =
        [Self::AttentionOutput, Self::MlpOutput, Self::Embedding, Self::LogitsGather, Self::Draft];

    /// The label in metrics and in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttentionOutput => "attention_output",
            Self::MlpOutput => "mlp_output",
            Self::Embedding => "embedding",
            Self::LogitsGather => "logits_gather",
            Self::Draft => "draft",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    AllReduce,
    AllGather,
    Broadcast,
}

impl Operation {
    /// The label in metrics and in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
        }
    }
}

/// The fusion label of a call that is not fused with anything.
pub const NO_FUSION: &str = "none";

/// One choice: messages of up to `up_to` bytes per rank, inclusive, use this algorithm and fusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    pub up_to: u64,
    pub algorithm: Arc<str>,
    /// [`NO_FUSION`] or the id of a fusion.
    pub fusion: Arc<str>,
}

impl fmt::Display for Rung {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.fusion {
            NO_FUSION => formatter.write_str(&self.algorithm),
            fusion => write!(formatter, "{} with {fusion}", self.algorithm),
        }
    }
}

/// The ladder of each operation, site and phase; where none was given, the default rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectivePlan {
    default: Rung,
    ladders: Vec<((Operation, Site, Phase), Vec<Rung>)>,
}

impl CollectivePlan {
    /// `algorithm` everywhere, unfused.
    pub fn uniform(algorithm: &str) -> Self {
        let default = Rung { up_to: u64::MAX, algorithm: algorithm.into(), fusion: NO_FUSION.into() };
        Self { default, ladders: Vec::new() }
    }

    /// Sets one ladder, smallest `up_to` first; larger messages use the default rung.
    pub fn set(&mut self, operation: Operation, site: Site, phase: Phase, ladder: Vec<Rung>) {
        let key = (operation, site, phase);
        match self.ladders.iter_mut().find(|(other, _)| *other == key) {
            Some((_, rungs)) => *rungs = ladder,
            None => self.ladders.push((key, ladder)),
        }
    }

    /// Whether some ladder holds this algorithm.
    pub fn uses(&self, algorithm: &str) -> bool {
        self.rungs().any(|(_, rung)| *rung.algorithm == *algorithm)
    }

    /// Every rung of every ladder, and the operation that it is for.
    pub fn rungs(&self) -> impl Iterator<Item = (Operation, &Rung)> {
        self.ladders.iter().flat_map(|((operation, _, _), rungs)| rungs.iter().map(|rung| (*operation, rung)))
    }

    /// The choice for a message of `bytes` per rank.
    pub fn rung(&self, operation: Operation, site: Site, phase: Phase, bytes: u64) -> &Rung {
        let key = (operation, site, phase);
        let ladder = self.ladders.iter().find(|(other, _)| *other == key);
        ladder.and_then(|(_, rungs)| rungs.iter().find(|rung| bytes <= rung.up_to)).unwrap_or(&self.default)
    }
}
