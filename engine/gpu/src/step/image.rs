//! The step on the host, in the layout of the device.

use bytemuck::cast_slice;
use engine::backend::{BackendError, Segment, StepInput, TreeMask};

use super::{AttentionGeometry, AttentionItem, Counts, NONE, PAGE, SegmentWords, StepCapacity, StepLayout};

/// Words of a step, reused between steps. [`StepImage::words`] is what is copied to the device.
#[derive(Debug)]
pub struct StepImage {
    layout: StepLayout,
    geometry: AttentionGeometry,
    words: Vec<u32>,
    used: usize,
    split: Vec<AttentionItem>,
    whole: Vec<AttentionItem>,
}

impl StepImage {
    pub fn new(layout: StepLayout, geometry: AttentionGeometry) -> Self {
        let capacity = layout.capacity;
        Self {
            layout,
            geometry,
            words: vec![0; layout.words()],
            used: 0,
            split: Vec::with_capacity(capacity.split_items),
            whole: Vec::with_capacity(capacity.whole_items),
        }
    }

    /// What the device needs of this step: the beginning of the layout, up to the last page.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.used]
    }

    /// Work items of `attend_whole`: its blocks in x. Steps that are captured have none.
    pub fn whole_items(&self) -> usize {
        self.whole.len()
    }

    /// Writes `input`, padded to `padded_rows` rows and logit rows. Errors: more than the layout has room for.
    pub fn fill(&mut self, input: &StepInput, padded_rows: usize) -> Result<(), BackendError> {
        self.check(input, padded_rows)?;
        let layout = self.layout;
        let rows = padded_rows.max(input.rows());
        self.geometry.cut(input, [&mut self.split, &mut self.whole]);
        for (at, values) in [(layout.tokens, &input.tokens), (layout.positions, &input.positions)] {
            self.write_padded(at, values, rows, 0);
        }
        self.write_padded(layout.logit_rows, &input.logit_rows, rows, 0);
        self.write_padded(layout.slots, &[], rows, NONE);
        for (to, row_move) in self.words[layout.moves..].chunks_exact_mut(2).zip(&input.moves) {
            to.copy_from_slice(&[row_move.from, row_move.to]);
        }
        for (index, segment) in input.segments.iter().enumerate() {
            self.write_segment(index, segment, input);
        }
        let (split, whole) = (std::mem::take(&mut self.split), std::mem::take(&mut self.whole));
        self.write(layout.split_items, cast_slice(&split));
        self.write(layout.whole_items, cast_slice(&whole));
        for (to, word) in self.words[layout.mask..].chunks_exact_mut(2).zip(&input.mask) {
            to.copy_from_slice(&[*word as u32, (*word >> 32) as u32]);
        }
        self.write(layout.pages, &input.pages);
        self.used = layout.pages + input.pages.len();
        let counts = Counts {
            rows: input.rows() as u32,
            segments: input.segments.len() as u32,
            logit_rows: input.logit_rows.len() as u32,
            split_items: split.len() as u32,
            whole_items: whole.len() as u32,
            moves: input.moves.len() as u32,
            reserved: [0; 2],
        };
        self.write(0, cast_slice(&[counts]));
        (self.split, self.whole) = (split, whole);
        Ok(())
    }

    fn check(&self, input: &StepInput, padded_rows: usize) -> Result<(), BackendError> {
        let StepCapacity { rows, segments, pages, mask_words, .. } = self.layout.capacity;
        for (what, actual, limit) in [
            ("rows", input.rows().max(padded_rows), rows),
            ("logit rows", input.logit_rows.len(), rows),
            ("moves", input.moves.len(), rows),
            ("segments", input.segments.len(), segments),
            ("pages", input.pages.len(), pages),
            ("mask words", input.mask.len(), mask_words),
        ] {
            if actual > limit {
                return Err(BackendError::StepTooLarge { what, actual, limit });
            }
        }
        Ok(())
    }

    fn write(&mut self, at: usize, words: &[u32]) {
        self.words[at..at + words.len()].copy_from_slice(words);
    }

    fn write_padded(&mut self, at: usize, values: &[u32], rows: usize, padding: u32) {
        self.write(at, values);
        self.words[at + values.len()..at + rows.max(values.len())].fill(padding);
    }

    fn write_segment(&mut self, index: usize, segment: &Segment, input: &StepInput) {
        let tree = segment.tree.as_ref();
        let row_words = tree.map_or(0, |tree| TreeMask::row_words(segment.start + segment.rows - tree.committed));
        let words = SegmentWords {
            first_row: segment.first_row as u32,
            rows: segment.rows as u32,
            start: segment.start as u32,
            first_page: segment.pages.start as u32,
            committed: tree.map_or(NONE, |tree| tree.committed as u32),
            first_word: tree.map_or(0, |tree| tree.words.start as u32),
            row_words: row_words as u32,
            reserved: 0,
        };
        let at = self.layout.segments + index * size_of::<SegmentWords>() / size_of::<u32>();
        self.write(at, cast_slice(&[words]));
        let pages = &input.pages[segment.pages.clone()];
        for row in 0..segment.rows {
            let position = segment.start + row;
            let slot = pages[position / PAGE] as usize * PAGE + position % PAGE;
            self.words[self.layout.slots + segment.first_row + row] = slot as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::backend::{HeadGroups, RowMove, StepLimits};

    use super::*;

    fn image(rows: usize) -> StepImage {
        let groups = HeadGroups { query_heads: 8, group: 4, offset: 0 };
        let geometry = AttentionGeometry::new(&groups, 2, 132);
        let limits = StepLimits { rows, segments: 3, pages: 8, mask_words: 4 };
        StepImage::new(StepLayout::new(StepCapacity::new(&limits, &geometry)), geometry)
    }

    fn input() -> StepInput {
        let tree = Some(TreeMask { committed: 18, words: 0..2 });
        StepInput {
            tokens: vec![7, 8, 9],
            positions: vec![40, 18, 19],
            segments: vec![
                Segment { first_row: 0, rows: 1, start: 40, pages: 0..3, tree: None },
                Segment { first_row: 1, rows: 2, start: 18, pages: 3..5, tree },
            ],
            pages: vec![5, 6, 7, 2, 1],
            mask: vec![1, 3 << 40],
            logit_rows: vec![0, 2],
            moves: vec![RowMove { from: 40, to: 33 }],
        }
    }

    #[test]
    fn every_integer_is_where_the_addresses_say() {
        let mut image = image(6);
        image.fill(&input(), 4).unwrap();
        let addresses = image.layout.addresses(0);
        let at = |address: u64, count: usize| &image.words()[address as usize / 4..][..count];
        assert_eq!(at(addresses.counts, 6), [3, 2, 2, 2, 0, 1]);
        assert_eq!(at(addresses.moves, 2), [40, 33]);
        assert_eq!(at(addresses.tokens, 4), [7, 8, 9, 0]);
        assert_eq!(at(addresses.positions, 4), [40, 18, 19, 0]);
        assert_eq!(at(addresses.slots, 4), [7 * 16 + 8, 18, 19, NONE]);
        assert_eq!(at(addresses.logit_rows, 4), [0, 2, 0, 0]);
        assert_eq!(at(addresses.segments, 16), [0, 1, 40, 0, NONE, 0, 0, 0, 1, 2, 18, 3, 18, 0, 1, 0]);
        assert_eq!(at(addresses.mask, 4), [1, 0, 0, 3 << 8]);
        assert_eq!(at(addresses.pages, 5), [5, 6, 7, 2, 1]);
        assert!(addresses.mask.is_multiple_of(8));
        assert_eq!(image.words().len(), addresses.pages as usize / 4 + 5);
    }

    #[test]
    fn a_list_of_rows_to_pick_takes_few_words() {
        let geometry = AttentionGeometry::new(&HeadGroups { query_heads: 1, group: 1, offset: 0 }, 1, 132);
        let limits = StepLimits { rows: 16, segments: 0, pages: 0, mask_words: 0 };
        let mut image = StepImage::new(StepLayout::new(StepCapacity::new(&limits, &geometry)), geometry);
        let picks = StepInput { logit_rows: vec![3, 1, 4], ..StepInput::default() };
        image.fill(&picks, limits.rows).unwrap();
        let at = image.layout.logit_rows;
        assert_eq!(image.words[at..at + 5], [3, 1, 4, 0, 0]);
        assert!(image.words().len() <= 8 + 6 * limits.rows, "{} words", image.words().len());
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let mut image = image(2);
        let error = image.fill(&input(), 0).unwrap_err();
        assert_eq!(error, BackendError::StepTooLarge { what: "rows", actual: 3, limit: 2 });
    }

    #[test]
    fn a_step_leaves_nothing_of_the_one_before_it() {
        let mut image = image(6);
        image.fill(&input(), 4).unwrap();
        let mut small = input();
        small.segments.truncate(1);
        (small.tokens, small.positions, small.logit_rows) = (vec![1], vec![40], vec![0]);
        image.fill(&small, 4).unwrap();
        let slots = image.layout.addresses(0).slots as usize / 4;
        assert_eq!(image.words()[slots..slots + 4], [7 * 16 + 8, NONE, NONE, NONE]);
    }
}
