//! One step of work, as the scheduler hands it to the executor: integers only.

use std::sync::Arc;

use super::SamplingParams;

/// Marks a token that is not known yet.
const CHOSEN: u32 = 1 << 31;

/// In place of a token: what is chosen at the place `index`. So a step can be handed over before the tokens of the one
/// before it are known. In a [`Batch`] a place is an entry of the step before.
pub const fn chosen(index: usize) -> u32 {
    CHOSEN | index as u32
}

/// The place that a token of [`chosen`] names; none for a token.
pub const fn chosen_index(token: u32) -> Option<usize> {
    if token & CHOSEN == 0 { None } else { Some((token & !CHOSEN) as usize) }
}

/// A physical page of the key-value cache: 16 consecutive token positions of one sequence in every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// A running sequence's place in the executor's per-sequence state, below the largest number of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// What kind of forward pass rows belong to. Collectives, kernels and graphs are planned per phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// A chunk of a prompt.
    Prefill,
    /// One token.
    Decode,
    /// The drafted tokens of a speculative step, root included.
    Verify,
    /// A pass of the draft model, inside the executor: a batch entry never has it.
    Draft,
}

impl Phase {
    /// The label in metrics and in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Verify => "verify",
            Self::Draft => "draft",
        }
    }
}

/// Which rows of an entry need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsRows {
    /// A chunk before the last one of a prompt.
    None,
    Last,
    /// Prompt log-probabilities were asked for.
    All,
}

/// What the executor must know of a sequence to sample from it. Given once, when the sequence takes its slot.
#[derive(Clone, Debug)]
pub struct Sampling {
    pub params: Arc<SamplingParams>,
    pub prompt: Arc<[u32]>,
    /// Output tokens that exist already: not empty after a preemption.
    pub output: Vec<u32>,
    /// Which of the request's `n` outputs this is; part of the random counter.
    pub choice: u32,
    /// Tokens that end the output (end of sequence unless ignored, and stop tokens); masked before `min_tokens`.
    pub end_tokens: Arc<[u32]>,
}

/// The work of one sequence in one step.
#[derive(Clone, Debug)]
pub struct BatchEntry {
    pub slot: SlotId,
    pub phase: Phase,
    /// Input token ids of this step. For `Verify` this is the root alone: the executor holds the drafted tokens. The one
    /// token of a `Decode` may be [`chosen`].
    pub tokens: Vec<u32>,
    /// Position of `tokens[0]`: the number of tokens of this sequence that are in the cache already.
    pub start: u32,
    /// Pages of the whole sequence in order; covers `start + tokens.len()` positions, and for `Verify` the
    /// longest outcome.
    pub pages: Vec<PageId>,
    /// For `Verify`: tokens to verify, root included. Otherwise 0.
    pub verify_tokens: u32,
    pub logits: LogitsRows,
    /// Choose the next token from the last row.
    pub sample: bool,
    /// First step of the sequence in this slot: its sampling state.
    pub begin: Option<Sampling>,
}

/// One step. Entries are ordered: prefill first, then verify, then decode.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Counts steps from 0; names a step in errors and traces.
    pub step: u64,
    pub entries: Vec<BatchEntry>,
    /// Slots whose sequence ended since the last step; the executor forgets their state before this step runs.
    /// After a failed step a slot may be named again, although it holds nothing.
    pub retired: Vec<SlotId>,
}

impl Batch {
    /// Number of input rows: what sizes the activations and the collectives of the step.
    pub fn rows(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len().max(entry.verify_tokens as usize)).sum()
    }
}
