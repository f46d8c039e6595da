//! The integers of a step, checked once so that the operations need not.

use engine::backend::{BackendError, Segment, StepInput, StepLimits, TreeMask};

/// The content of the current step.
pub struct Step {
    limits: StepLimits,
    pub input: StepInput,
}

impl Step {
    pub fn new(limits: StepLimits) -> Self {
        Self { limits, input: StepInput::default() }
    }

    pub fn upload(&mut self, input: &StepInput) -> Result<(), BackendError> {
        let limits = &self.limits;
        for (what, actual, limit) in [
            ("rows", input.rows(), limits.rows),
            ("segments", input.segments.len(), limits.segments),
            ("pages", input.pages.len(), limits.pages),
            ("mask words", input.mask.len(), limits.mask_words),
            ("moved rows", input.moves.len(), limits.rows),
        ] {
            if actual > limit {
                return Err(BackendError::StepTooLarge { what, actual, limit });
            }
        }
        self.input.tokens.clone_from(&input.tokens);
        self.input.positions.clone_from(&input.positions);
        self.input.segments.clone_from(&input.segments);
        self.input.pages.clone_from(&input.pages);
        self.input.mask.clone_from(&input.mask);
        self.input.logit_rows.clone_from(&input.logit_rows);
        self.input.moves.clone_from(&input.moves);
        Ok(())
    }

    /// What each row of a segment sees.
    pub fn views<'a>(&'a self, segment: &'a Segment) -> impl Iterator<Item = RowView<'a>> + 'a {
        let pages = &self.input.pages[segment.pages.clone()];
        (0..segment.rows).map(move |index| RowView {
            row: segment.first_row + index,
            position: segment.start + index,
            pages,
            mask: segment.tree.as_ref().map(|tree| self.mask_row(segment, tree, index)),
        })
    }

    fn mask_row<'a>(&'a self, segment: &Segment, tree: &TreeMask, index: usize) -> MaskRow<'a> {
        let words = TreeMask::row_words(segment.start + segment.rows - tree.committed);
        let first = tree.words.start + index * words;
        MaskRow { committed: tree.committed, words: &self.input.mask[first..first + words] }
    }
}

/// Visibility of drafted positions for one row.
#[derive(Clone, Copy)]
pub struct MaskRow<'a> {
    committed: usize,
    words: &'a [u64],
}

/// One row of a step and the cache positions that it sees.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    /// Row of the activations.
    pub row: usize,
    /// Its own cache position.
    pub position: usize,
    /// Pages of its sequence, in order.
    pub pages: &'a [u32],
    mask: Option<MaskRow<'a>>,
}

impl RowView<'_> {
    /// Positions `0..span` hold everything that the row sees; [`RowView::sees`] says which of them it does.
    pub fn span(&self) -> usize {
        match self.mask {
            None => self.position + 1,
            Some(mask) => mask.committed + mask.words.len() * 64 - mask.last_gap(),
        }
    }

    pub fn sees(&self, position: usize) -> bool {
        match self.mask {
            None => position <= self.position,
            Some(mask) => position < mask.committed || mask.bit(position - mask.committed),
        }
    }
}

impl MaskRow<'_> {
    fn bit(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Unset bits above the highest set one.
    fn last_gap(&self) -> usize {
        let empty = self.words.iter().rev().take_while(|word| **word == 0).count();
        let top = self.words.iter().rev().nth(empty).map_or(0, |word| word.leading_zeros() as usize);
        empty * 64 + top
    }
}
