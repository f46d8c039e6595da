//! One step as a backend sees it: integers, flattened, uploaded once per step.

use std::ops::Range;

/// Rows of one sequence in a step. Row `i` of the segment is written to cache position `start + i` and sees every
/// position up to and including its own, unless a tree mask says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First row of the step that belongs to this sequence.
    pub first_row: usize,
    pub rows: usize,
    /// Positions of this sequence that are in the cache already.
    pub start: usize,
    /// Where the sequence's pages are in [`StepInput::pages`].
    pub pages: Range<usize>,
    pub tree: Option<TreeMask>,
}

/// Visibility among drafted tokens. Cache positions below `committed` are seen by every row; above, row `i` sees
/// position `committed + j` where bit `j` of its words is set (lowest bit first). A row's words cover
/// `start + rows - committed` bits, rounded up to whole words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeMask {
    pub committed: usize,
    /// Where the words are in [`StepInput::mask`], row by row.
    pub words: Range<usize>,
}

impl TreeMask {
    /// 64-bit words in one row of a mask over `bits` positions.
    pub const fn row_words(bits: usize) -> usize {
        bits.div_ceil(64)
    }
}

/// A cached row of every layer that goes to another place: what makes an accepted path of a tree consecutive. Places are
/// `page * page_size + position in the page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMove {
    pub from: u32,
    pub to: u32,
}

/// The content of a step. Reused between steps, so that building it does not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepInput {
    /// Token id of each row, or [`crate::types::chosen`]: what the device has chosen for that place
    /// ([`super::Backend::choose`]) by the time when the step is computed.
    pub tokens: Vec<u32>,
    /// Rotary position of each row. In a tree it is the depth that counts, not the cache position.
    pub positions: Vec<u32>,
    pub segments: Vec<Segment>,
    /// Page ids of all segments, one after the other.
    pub pages: Vec<u32>,
    /// Words of all tree masks.
    pub mask: Vec<u64>,
    /// Rows that need logits, ascending.
    pub logit_rows: Vec<u32>,
    /// For [`super::Backend::move_rows`], in the order in which they are done; at most as many as the step may have rows.
    pub moves: Vec<RowMove>,
}

impl StepInput {
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.segments.clear();
        self.pages.clear();
        self.mask.clear();
        self.logit_rows.clear();
        self.moves.clear();
    }
}

/// The largest step that can be uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLimits {
    pub rows: usize,
    pub segments: usize,
    pub pages: usize,
    pub mask_words: usize,
}
