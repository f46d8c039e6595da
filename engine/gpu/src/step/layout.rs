//! Where each array of a step lies.

use engine::backend::StepLimits;

use super::{AttentionGeometry, AttentionItem, Counts, SegmentWords};

const WORD: usize = size_of::<u32>();

/// The largest step that a layout has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepCapacity {
    pub rows: usize,
    pub segments: usize,
    pub pages: usize,
    /// Of 64 bits.
    pub mask_words: usize,
    pub split_items: usize,
    pub whole_items: usize,
}

impl StepCapacity {
    /// Room for every step within `limits`, whatever its attention is cut into.
    pub fn new(limits: &StepLimits, geometry: &AttentionGeometry) -> Self {
        let StepLimits { rows, segments, pages, mask_words } = *limits;
        // A list of rows to pick has no sequences, so no attention reads it.
        let (split_items, whole_items) = if segments == 0 { (0, 0) } else { (geometry.split_grid(rows), rows) };
        Self { rows, segments, pages, mask_words, split_items, whole_items }
    }
}

/// Word offsets of the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLayout {
    pub capacity: StepCapacity,
    pub(super) tokens: usize,
    pub(super) positions: usize,
    pub(super) slots: usize,
    pub(super) logit_rows: usize,
    pub(super) moves: usize,
    pub(super) segments: usize,
    pub(super) split_items: usize,
    pub(super) whole_items: usize,
    pub(super) mask: usize,
    pub(super) pages: usize,
    words: usize,
}

impl StepLayout {
    pub fn new(capacity: StepCapacity) -> Self {
        let mut words = size_of::<Counts>() / WORD;
        // Every array begins at a multiple of eight words, so at 32 bytes.
        let mut array = |length: usize| {
            let start = words;
            words = (start + length).next_multiple_of(8);
            start
        };
        let StepCapacity { rows, segments, pages, mask_words, split_items, whole_items } = capacity;
        Self {
            capacity,
            tokens: array(rows),
            positions: array(rows),
            slots: array(rows),
            logit_rows: array(rows),
            moves: array(2 * rows),
            segments: array(segments * size_of::<SegmentWords>() / WORD),
            split_items: array(split_items * size_of::<AttentionItem>() / WORD),
            whole_items: array(whole_items * size_of::<AttentionItem>() / WORD),
            mask: array(2 * mask_words),
            pages: array(pages),
            words,
        }
    }

    /// 32-bit words of the whole.
    pub fn words(&self) -> usize {
        self.words
    }

    pub fn bytes(&self) -> usize {
        self.words * WORD
    }

    /// Addresses of the arrays in an allocation of [`Self::bytes`] bytes at `base`.
    pub fn addresses(&self, base: u64) -> StepAddresses {
        let at = |word: usize| base + (word * WORD) as u64;
        StepAddresses {
            counts: base,
            tokens: at(self.tokens),
            positions: at(self.positions),
            slots: at(self.slots),
            logit_rows: at(self.logit_rows),
            moves: at(self.moves),
            segments: at(self.segments),
            split_items: at(self.split_items),
            whole_items: at(self.whole_items),
            mask: at(self.mask),
            pages: at(self.pages),
        }
    }
}

/// Device addresses of a step's arrays: what the kernels' arguments take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepAddresses {
    pub counts: u64,
    pub tokens: u64,
    pub positions: u64,
    pub slots: u64,
    pub logit_rows: u64,
    pub moves: u64,
    pub segments: u64,
    pub split_items: u64,
    pub whole_items: u64,
    pub mask: u64,
    pub pages: u64,
}
