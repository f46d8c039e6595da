//! One output of one request.

use std::sync::Arc;

use crate::cache::{BlockTable, Namespace, PAGE_SIZE, Tokens};
use crate::types::{FinishReason, Sampling, SamplingParams, SlotId};

/// Names a sequence; ascending in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// Order of service: priority, then arrival.
pub(super) type Rank = (i32, SequenceId);

#[derive(Debug)]
pub(super) struct Sequence {
    pub id: SequenceId,
    pub priority: i32,
    pub choice: u32,
    /// The first sequence of the same request.
    pub leader: SequenceId,
    pub params: Arc<SamplingParams>,
    pub end_tokens: Arc<[u32]>,
    pub namespace: Namespace,
    pub tokens: Tokens,
    /// Leading positions whose key-value rows are written and committed. 0 while waiting.
    pub computed: usize,
    /// Where it runs; None while waiting.
    pub place: Option<Place>,
    /// Its rows of the first step in flight that has any.
    pub flight: Option<Flight>,
    /// Those of the step that follows on that one.
    pub second: Option<Flight>,
    /// Its last turn: among decodes, those with the smallest are served first.
    pub served: u64,
    /// Tokens to verify per step, root included; 0 and 1 mean plain decoding.
    pub verify_tokens: u32,
    /// Prompt positions whose log-probabilities have been delivered.
    pub prompt_logprobs: usize,
    /// Prompt tokens found in the prefix cache at the first admission; None before it.
    pub cached: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub slot: SlotId,
    pub table: BlockTable,
    /// The executor has this sequence's sampling state.
    pub begun: bool,
}

/// A step's rows between launch and commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// Positions that will be written for certain.
    pub rows: usize,
    /// Most tokens that may come out; 0 for an inner chunk of a prompt.
    pub most: usize,
    /// The sequence still holds the pages that the step writes.
    pub kept: bool,
    /// Which of the step's entries they are.
    pub entry: usize,
}

impl Sequence {
    pub fn rank(&self) -> Rank {
        (self.priority, self.id)
    }

    /// Tokens still to be written once the step in flight is committed; 1 means that it needs its next token.
    pub fn remaining(&self) -> usize {
        let left = self.tokens.len() - self.computed;
        match self.flight {
            // Whatever the number of tokens that come out, one of them is not yet written.
            Some(flight) if flight.kept && flight.most > 0 => 1,
            Some(flight) if flight.kept => left - flight.rows,
            _ => left,
        }
    }

    /// The highest position at which the next rows can start.
    pub fn latest_start(&self) -> usize {
        match self.flight {
            Some(flight) if flight.kept => self.computed + flight.rows.max(flight.most),
            _ => self.computed,
        }
    }

    /// Fewest output tokens once the step in flight is committed.
    fn fewest_output(&self) -> usize {
        self.tokens.output().len() + self.flight.map_or(0, |flight| flight.most.min(1))
    }

    /// Most tokens that may still be added after the step in flight.
    pub fn allowance(&self, context: usize) -> usize {
        let output = self.fewest_output();
        let by_request = (self.params.max_tokens as usize).saturating_sub(output);
        by_request.min(context.saturating_sub(self.tokens.prompt().len() + output))
    }

    /// The entry in flight that is sure to bring its one next token, whose pages are still its own.
    pub fn awaits(&self) -> Option<usize> {
        self.flight.filter(|flight| flight.kept && flight.most == 1).map(|flight| flight.entry)
    }

    /// Only its next token is missing: no row of the prompt is left, and the executor knows it.
    pub fn decodes(&self) -> bool {
        let begun = self.place.as_ref().is_some_and(|place| place.begun);
        let prompt_done = self.latest_start() >= self.tokens.prompt().len();
        begun && prompt_done && self.remaining() == 1
    }

    pub fn prompt_computed(&self) -> bool {
        self.computed >= self.tokens.prompt().len()
    }

    /// Prompt log-probabilities are wanted and not complete. Every row of the prompt must then be computed.
    pub fn wants_prompt_logprobs(&self) -> bool {
        self.choice == 0
            && self.params.prompt_logprobs.is_some()
            && self.prompt_logprobs < self.tokens.prompt().len() - 1
    }

    /// Shares whole pages of the prompt with its leader.
    pub fn follows_leader(&self) -> bool {
        self.id != self.leader && self.tokens.prompt().len() > PAGE_SIZE
    }

    pub fn sampling(&self) -> Sampling {
        Sampling {
            params: self.params.clone(),
            prompt: self.tokens.prompt().clone(),
            output: self.tokens.output().to_vec(),
            choice: self.choice,
            end_tokens: self.end_tokens.clone(),
        }
    }

    /// Whether the last token ends the output.
    pub fn finish_reason(&self, context: usize) -> Option<FinishReason> {
        let output = self.tokens.output();
        let ended = output.last().is_some_and(|token| self.end_tokens.contains(token));
        if ended && output.len() > self.params.min_tokens as usize {
            return Some(FinishReason::Stop);
        }
        let full = output.len() >= self.params.max_tokens as usize || self.tokens.len() >= context;
        full.then_some(FinishReason::Length)
    }
}
