//! From a batch to the integers of a step.

use crate::backend::{RowMove, Segment, StepInput, StepLimits, TreeMask};
use crate::executor::Capacity;
use crate::spec::{DraftTree, Outcome};
use crate::types::{Batch, BatchEntry, LogitsRows, Phase};

/// The largest step of a capacity. `verify_tokens` is the widest verify entry.
pub(super) fn limits(capacity: &Capacity, verify_tokens: usize) -> StepLimits {
    let pages_each = capacity.context.div_ceil(capacity.page_size) as usize;
    StepLimits {
        rows: capacity.rows as usize,
        segments: capacity.slots as usize,
        pages: capacity.slots as usize * pages_each,
        mask_words: capacity.rows as usize * TreeMask::row_words(verify_tokens),
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

/// Lays the entries' rows one after the other: their tokens, or those of their tree, of which there is one for each
/// verify entry. `wanted` names the logit rows in the same order as `input`.
pub(super) fn fill(batch: &Batch, trees: &[Option<DraftTree>], input: &mut StepInput, wanted: &mut Vec<LogitRow>) {
    input.clear();
    wanted.clear();
    for (index, entry) in batch.entries.iter().enumerate() {
        let (first_row, first_page, start) = (input.tokens.len(), input.pages.len(), entry.start as usize);
        let mask = match trees.get(index).and_then(Option::as_ref) {
            Some(tree) => fill_tree(entry, tree, input),
            None => {
                input.tokens.extend_from_slice(&entry.tokens);
                input.positions.extend((entry.start..).take(entry.tokens.len()));
                None
            }
        };
        input.pages.extend(entry.pages.iter().map(|page| page.0));
        let (rows, pages) = (input.tokens.len() - first_row, first_page..input.pages.len());
        input.segments.push(Segment { first_row, rows, start, pages, tree: mask });
        for row in logit_rows(entry, rows) {
            input.logit_rows.push((first_row + row) as u32);
            wanted.push(LogitRow { entry: index, row });
        }
    }
}

/// A tree's nodes as rows; its mask unless plain causal attention is right.
fn fill_tree(entry: &BatchEntry, tree: &DraftTree, input: &mut StepInput) -> Option<TreeMask> {
    input.tokens.extend_from_slice(&tree.tokens);
    input.positions.extend(tree.depths.iter().map(|depth| entry.start + depth));
    let first = input.mask.len();
    (!tree.is_chain()).then(|| {
        tree.mask(&mut input.mask);
        TreeMask { committed: entry.start as usize, words: first..input.mask.len() }
    })
}

/// Moves that make the accepted path of each verify entry consecutive in the cache.
pub(super) fn fill_moves(batch: &Batch, outcomes: &[Outcome], page_size: u32, input: &mut StepInput) {
    input.clear();
    for (entry, outcome) in batch.entries.iter().zip(outcomes).filter(|(entry, _)| entry.phase == Phase::Verify) {
        let place = |row: usize| {
            let position = entry.start + row as u32;
            entry.pages[(position / page_size) as usize].0 * page_size + position % page_size
        };
        let moved = outcome.path.iter().enumerate().filter(|(to, from)| to != *from);
        input.moves.extend(moved.map(|(to, from)| RowMove { from: place(*from), to: place(to) }));
    }
}

fn logit_rows(entry: &BatchEntry, rows: usize) -> std::ops::Range<usize> {
    if entry.phase == Phase::Verify {
        return 0..rows;
    }
    match entry.logits {
        LogitsRows::None => 0..0,
        LogitsRows::Last => rows - 1..rows,
        LogitsRows::All => 0..rows,
    }
}
