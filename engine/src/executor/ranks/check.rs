//! Refuses a batch that the ranks' buffers cannot hold, so that no rank has to.

use crate::executor::{Capacity, ExecutorError};
use crate::types::{Batch, BatchEntry, Phase, chosen_index};

/// Errors: an entry that is outside `capacity` or asks for what this executor cannot do. The executor goes on.
/// `verify_tokens` is the widest verify entry, 0 without a draft model; the step before had `before` entries.
pub(super) fn check(
    batch: &Batch,
    capacity: &Capacity,
    verify_tokens: usize,
    before: usize,
) -> Result<(), ExecutorError> {
    let refuse = |message: String| ExecutorError { message: format!("step {}: {message}", batch.step), fatal: false };
    if batch.rows() > capacity.rows as usize {
        return Err(refuse(format!("{} rows, but {} were reserved at start", batch.rows(), capacity.rows)));
    }
    if batch.entries.len() > capacity.slots as usize {
        let (entries, slots) = (batch.entries.len(), capacity.slots);
        return Err(refuse(format!("{entries} sequences, but {slots} slots were reserved at start")));
    }
    for entry in &batch.entries {
        check_entry(entry, capacity, verify_tokens, before)
            .map_err(|message| refuse(format!("slot {}: {message}", entry.slot.0)))?;
    }
    Ok(())
}

fn check_entry(entry: &BatchEntry, capacity: &Capacity, verify_tokens: usize, before: usize) -> Result<(), String> {
    let Capacity { pages, page_size, slots, context, vocabulary, .. } = *capacity;
    let end = u64::from(entry.start) + entry.tokens.len().max(entry.verify_tokens as usize) as u64;
    check_phase(entry, verify_tokens)?;
    if entry.slot.0 >= slots {
        return Err(format!("there are {slots} slots"));
    }
    if entry.tokens.is_empty() {
        return Err("no token".to_owned());
    }
    if end > u64::from(context) {
        return Err(format!("{end} positions, but the longest sequence has {context}"));
    }
    if end > entry.pages.len() as u64 * u64::from(page_size) || entry.pages.len() > context.div_ceil(page_size) as usize
    {
        return Err(format!("{} pages of {page_size} for {end} positions", entry.pages.len()));
    }
    if let Some(page) = entry.pages.iter().find(|page| page.0 >= pages) {
        return Err(format!("page {}, but there are {pages}", page.0));
    }
    entry.tokens.iter().try_for_each(|token| match chosen_index(*token) {
        Some(_) if entry.phase != Phase::Decode => {
            Err(format!("a token that is not known yet in a {} entry", entry.phase.name()))
        }
        Some(of) if of >= before => Err(format!("the token of entry {of}, but the step before had {before} entries")),
        None if *token >= vocabulary => Err(format!("token {token}, but the vocabulary has {vocabulary}")),
        _ => Ok(()),
    })
}

fn check_phase(entry: &BatchEntry, most: usize) -> Result<(), String> {
    let BatchEntry { phase, verify_tokens, .. } = *entry;
    match phase {
        Phase::Draft => Err("the phase is draft, which is no part of a batch".to_owned()),
        Phase::Verify if most == 0 => Err("the phase is verify, but there is no draft model".to_owned()),
        Phase::Verify
            if !(2..=most).contains(&(verify_tokens as usize)) || entry.tokens.len() != 1 || !entry.sample =>
        {
            let tokens = entry.tokens.len();
            Err(format!("{verify_tokens} tokens to verify after {tokens}; 2 to {most} after 1 can be"))
        }
        Phase::Prefill | Phase::Decode if verify_tokens > 0 => {
            Err(format!("{verify_tokens} tokens to verify in a {} entry", phase.name()))
        }
        Phase::Prefill | Phase::Decode | Phase::Verify => Ok(()),
    }
}
