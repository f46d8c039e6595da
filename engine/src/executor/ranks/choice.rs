//! What a rank makes of the logits: tokens and log-probabilities.

use std::sync::Arc;

use super::input::LogitRow;
use crate::sampler::{Draw, LogitChange, SampleError, SamplerScratch, SamplerState, token_logprobs};
use crate::spec::{DraftTree, Walk};
use crate::types::{Batch, BatchEntry, EntryOutput, LogitsRows, TokenLogprobs, TokenOutput};

/// Sampling state of the running sequences, by slot.
pub(super) struct Choices {
    slots: Vec<Option<Slot>>,
    scratch: SamplerScratch,
}

/// The tree of a verify entry and the way through it.
pub(super) struct Verified<'a> {
    pub tree: &'a DraftTree,
    pub walk: &'a mut Walk,
}

struct Slot {
    sampler: SamplerState,
    prompt: Arc<[u32]>,
    /// Best tokens to report for each position of the prompt.
    prompt_top: u32,
}

impl Choices {
    pub fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| None).collect(), scratch: SamplerScratch::new() }
    }

    /// Forgets retired sequences and takes in those that begin. Errors: an entry whose sequence never began.
    pub fn prepare(&mut self, batch: &Batch) -> Result<(), String> {
        for slot in &batch.retired {
            if let Some(state) = self.slots.get_mut(slot.0 as usize) {
                *state = None;
            }
        }
        for entry in &batch.entries {
            if let Some(sampling) = &entry.begin {
                let prompt_top = sampling.params.prompt_logprobs.unwrap_or(0);
                let (sampler, prompt) = (SamplerState::new(sampling), Arc::clone(&sampling.prompt));
                self.slots[entry.slot.0 as usize] = Some(Slot { sampler, prompt, prompt_top });
            } else if self.slots[entry.slot.0 as usize].is_none() {
                return Err(format!("slot {} continues a sequence that has not begun", entry.slot.0));
            }
        }
        Ok(())
    }

    /// Whether the device may choose every token of this batch: the largest logit of each entry's last row.
    pub fn takes_largest(&self, batch: &Batch) -> bool {
        batch.entries.iter().filter(|entry| entry.logits != LogitsRows::None).all(|entry| {
            let slot = self.slots.get(entry.slot.0 as usize).and_then(Option::as_ref);
            entry.logits == LogitsRows::Last && slot.is_some_and(|slot| slot.sampler.takes_largest())
        })
    }

    /// Whether the device may draw every token of this batch, with at most `most_changes` changes of logits. `unknown`
    /// tokens before the batch's own are not known yet.
    pub fn draws(&self, batch: &Batch, most_changes: usize, unknown: u32) -> bool {
        let mut changes = 0;
        batch.entries.iter().filter(|entry| entry.logits != LogitsRows::None).all(|entry| {
            let slot = self.slots.get(entry.slot.0 as usize).and_then(Option::as_ref);
            let rows = entry.verify_tokens.max(1) + unknown;
            changes += slot.map_or(0, |slot| slot.sampler.most_changes()) * rows as usize;
            entry.logits == LogitsRows::Last
                && slot.is_some_and(|slot| slot.sampler.draws(rows))
                && changes <= most_changes
        })
    }

    /// How the token is drawn that comes `ahead` tokens after the next one; appends changes of its logits. None for an
    /// entry whose sequence never began.
    pub fn draw(&self, entry: &BatchEntry, ahead: u32, changes: &mut Vec<LogitChange>) -> Option<Draw> {
        let slot = self.slots.get(entry.slot.0 as usize)?.as_ref()?;
        Some(slot.sampler.draw(ahead, changes))
    }

    /// Takes the token that the device chose from a row of logits. Errors: the row had no finite logit.
    pub fn take(
        &mut self,
        entry: &BatchEntry,
        wanted: LogitRow,
        id: u32,
        verified: Option<Verified<'_>>,
        output: &mut EntryOutput,
    ) -> Result<(), String> {
        let slot = self.slot(entry)?;
        if !decides(entry, wanted, verified.as_ref()) {
            return Ok(());
        }
        if id == u32::MAX {
            return Err(SampleError { position: slot.sampler.position() }.to_string());
        }
        slot.append(TokenOutput { id, logprobs: None }, verified, output);
        Ok(())
    }

    /// Reads one row of logits. Errors: a row without a usable logit.
    pub fn read(
        &mut self,
        entry: &BatchEntry,
        wanted: LogitRow,
        logits: &mut [f32],
        verified: Option<Verified<'_>>,
        output: &mut EntryOutput,
    ) -> Result<(), String> {
        let Self { slots, scratch } = self;
        let slot = slots[entry.slot.0 as usize].as_mut().ok_or_else(|| empty(entry))?;
        if entry.logits == LogitsRows::All {
            output.prompt_logprobs.extend(slot.prompt_logprobs(entry, wanted.row, logits)?);
        }
        if decides(entry, wanted, verified.as_ref()) {
            let token = slot.sampler.sample(logits, scratch).map_err(|error| error.to_string())?;
            slot.append(token, verified, output);
        }
        Ok(())
    }

    /// Takes tokens that were chosen elsewhere. Errors: an entry whose sequence never began.
    pub fn note(&mut self, entry: &BatchEntry, tokens: &[u32]) -> Result<(), String> {
        let slot = self.slot(entry)?;
        tokens.iter().for_each(|token| slot.sampler.append(*token));
        Ok(())
    }

    fn slot(&mut self, entry: &BatchEntry) -> Result<&mut Slot, String> {
        self.slots[entry.slot.0 as usize].as_mut().ok_or_else(|| empty(entry))
    }
}

fn empty(entry: &BatchEntry) -> String {
    format!("slot {} is empty", entry.slot.0)
}

/// Whether the row gives the entry's next token.
fn decides(entry: &BatchEntry, wanted: LogitRow, verified: Option<&Verified<'_>>) -> bool {
    match verified {
        Some(verified) => verified.walk.wants(wanted.row),
        None => entry.sample && wanted.row + 1 == entry.tokens.len(),
    }
}

impl Slot {
    fn append(&mut self, token: TokenOutput, verified: Option<Verified<'_>>, output: &mut EntryOutput) {
        self.sampler.append(token.id);
        if let Some(Verified { tree, walk }) = verified {
            walk.take(tree, token.id);
            (output.drafted, output.accepted) = (tree.rows() as u32 - 1, walk.path().len() as u32 - 1);
        }
        output.tokens.push(token);
    }

    /// Log-probabilities of the prompt's token after this row; none after the last one.
    fn prompt_logprobs(&self, entry: &BatchEntry, row: usize, logits: &[f32]) -> Result<Option<TokenLogprobs>, String> {
        let position = entry.start as usize + row + 1;
        let Some(token) = self.prompt.get(position) else { return Ok(None) };
        let logprobs = token_logprobs(logits, *token, self.prompt_top);
        Ok(Some(logprobs.ok_or_else(|| format!("no finite logit at position {position} of the prompt"))?))
    }
}
