//! From a batch to the integers of a step.

use crate::backend::{Segment, StepInput, StepLimits};
use crate::executor::Capacity;
use crate::types::{Batch, BatchEntry, LogitsRows, Phase};

/// The largest step of a capacity.
pub(super) fn limits(capacity: &Capacity) -> StepLimits {
    let pages_each = capacity.context.div_ceil(capacity.page_size) as usize;
    StepLimits {
        rows: capacity.rows as usize,
        segments: capacity.slots as usize,
        pages: capacity.slots as usize * pages_each,
        mask_words: 0,
    }
}

/// The phase that a batch is planned and counted as: that of its widest kind of entry.
pub(super) fn phase(batch: &Batch) -> Phase {
    let has = |phase| batch.entries.iter().any(|entry| entry.phase == phase);
    if has(Phase::Prefill) {
        Phase::Prefill
    } else if has(Phase::Verify) {
        Phase::Verify
    } else {
        Phase::Decode
    }
}

/// A row whose logits are needed: which entry of the batch it is of, and which of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogitRow {
    pub entry: usize,
    pub row: usize,
}

/// Lays the entries' rows one after the other. `wanted` names the logit rows in the same order as `input`.
pub(super) fn fill(batch: &Batch, input: &mut StepInput, wanted: &mut Vec<LogitRow>) {
    input.clear();
    wanted.clear();
    for (index, entry) in batch.entries.iter().enumerate() {
        let (first_row, first_page) = (input.tokens.len(), input.pages.len());
        input.tokens.extend_from_slice(&entry.tokens);
        input.positions.extend((entry.start..).take(entry.tokens.len()));
        input.pages.extend(entry.pages.iter().map(|page| page.0));
        let (rows, pages) = (entry.tokens.len(), first_page..input.pages.len());
        input.segments.push(Segment { first_row, rows, start: entry.start as usize, pages, tree: None });
        for row in logit_rows(entry) {
            input.logit_rows.push((first_row + row) as u32);
            wanted.push(LogitRow { entry: index, row });
        }
    }
}

fn logit_rows(entry: &BatchEntry) -> std::ops::Range<usize> {
    let rows = entry.tokens.len();
    match entry.logits {
        LogitsRows::None => 0..0,
        LogitsRows::Last => rows - 1..rows,
        LogitsRows::All => 0..rows,
    }
}
