//! What a finished step means for its sequences.

use std::ops::Range;

use super::launch::{InFlight, InFlightEntry};
use super::sequence::SequenceId;
use super::state::Scheduler;
use crate::types::{EntryOutput, FinishReason, Phase, StepOutput};

/// What one entry of the step did for its sequence. Entries of sequences that ended meanwhile have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub sequence: SequenceId,
    /// Index of the entry in the batch and in the output.
    pub entry: usize,
    /// The entry's first so many tokens belong to the output; those after an end are dropped.
    pub tokens: usize,
    /// Which of the entry's prompt log-probabilities are new.
    pub prompt_logprobs: Range<usize>,
    /// The sequence ended and is gone.
    pub finish: Option<FinishReason>,
}

/// The executor answered something else than what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the executor's output does not fit the step: {0}")]
pub struct ProtocolError(pub String);

impl Scheduler {
    /// Takes the output of the first step in flight. On error the step is still in flight; end it with `fail_step`.
    pub fn commit(&mut self, output: &StepOutput) -> Result<Vec<Progress>, ProtocolError> {
        let Some(in_flight) = self.in_flight.front() else {
            return Err(ProtocolError("no step is in flight".into()));
        };
        check(in_flight, output, self.config.vocabulary)?;
        let entries = self.in_flight.pop_front().map_or(Vec::new(), |step| step.entries);
        let pairs = entries.iter().zip(&output.entries).enumerate();
        Ok(pairs.filter_map(|(index, (entry, output))| self.advance(index, entry, output)).collect())
    }

    fn advance(&mut self, index: usize, entry: &InFlightEntry, output: &EntryOutput) -> Option<Progress> {
        let context = self.config.context as usize;
        let sequence = self.sequences.get_mut(&entry.sequence)?;
        let kept = std::mem::replace(&mut sequence.flight, sequence.second.take()).is_some_and(|flight| flight.kept);
        let (mut tokens, mut finish) = (0, None);
        while let (Some(token), None) = (output.tokens.get(tokens), finish) {
            sequence.tokens.push(token.id);
            tokens += 1;
            finish = sequence.finish_reason(context);
        }
        let known = sequence.prompt_logprobs.saturating_sub(entry.start).min(output.prompt_logprobs.len());
        let prompt_logprobs = known..output.prompt_logprobs.len();
        sequence.prompt_logprobs += prompt_logprobs.len();
        if kept {
            sequence.computed = entry.start + if entry.phase == Phase::Verify { tokens } else { entry.rows };
            let shares = self.config.prefix_cache || sequence.params.n > 1;
            if let Some(place) = sequence.place.as_mut().filter(|_| shares) {
                self.cache.publish(&mut place.table, &sequence.tokens, sequence.computed);
            }
        }
        if finish.is_some() {
            self.finish(entry.sequence);
        }
        Some(Progress { sequence: entry.sequence, entry: index, tokens, prompt_logprobs, finish })
    }

    /// The first step in flight failed: its sequences are gone. Returns them.
    pub fn fail_step(&mut self) -> Vec<SequenceId> {
        let Some(InFlight { entries, retired }) = self.in_flight.pop_front() else { return Vec::new() };
        // The executor may not have come to it; to retire a slot twice is harmless.
        self.retired.extend(retired);
        entries.into_iter().map(|entry| entry.sequence).filter(|id| self.finish(*id)).collect()
    }
}

fn check(in_flight: &InFlight, output: &StepOutput, vocabulary: u32) -> Result<(), ProtocolError> {
    let (asked, given) = (in_flight.entries.len(), output.entries.len());
    if asked != given {
        return Err(ProtocolError(format!("{asked} entries were asked for and {given} came")));
    }
    for (index, (entry, output)) in in_flight.entries.iter().zip(&output.entries).enumerate() {
        let allowed = match (entry.samples, entry.phase) {
            (false, _) => 0..=0,
            (true, Phase::Verify) => 1..=entry.rows,
            (true, _) => 1..=1,
        };
        let tokens = output.tokens.len();
        if !allowed.contains(&tokens) {
            return Err(ProtocolError(format!(
                "entry {index} brought {tokens} tokens, not {} to {}",
                allowed.start(),
                allowed.end()
            )));
        }
        if let Some(token) = output.tokens.iter().find(|token| token.id >= vocabulary) {
            return Err(ProtocolError(format!("entry {index} brought token {} outside of the vocabulary", token.id)));
        }
        let (asked, given) = (entry.prompt_logprobs, output.prompt_logprobs.len());
        if asked != given {
            return Err(ProtocolError(format!("entry {index} brought {given} prompt log-probabilities, not {asked}")));
        }
    }
    Ok(())
}
