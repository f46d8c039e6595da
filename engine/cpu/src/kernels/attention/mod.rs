//! Grouped-query attention over a paged cache.
//!
//! Blocks of 16 positions are the unit: keys lie transposed (`[dimension][16 positions]`), so that a vector holds one
//! dimension of 16 positions and scores need no sum across lanes; values lie as they are (`[16 positions][dimension]`).
//! A query's result depends on its own visible positions alone, always summed in order of position: it is the same in
//! a prompt, in a chunk of it, in a decode step and in any batch.

mod cache;
mod tile;

use std::{cell::RefCell, ops::Range};

use engine::backend::{Blocks, HeadGroups, Segment, StepInput, TreeMask};

pub use cache::{CacheElement, KeyValueCache, KeyValueColumns};

use super::{compute::Compute, product::Output};
use cache::F16;
use tile::{Memory, PieceWork};

/// Multiplications of scores and values below which the other threads are not worth waking.
const WORTH_SHARING: usize = 128 * 1024;

/// Queries in a piece of work at most.
const LARGEST_PIECE: usize = 32;

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// What one call reads. The step's own keys and values are in the cache already.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    pub step: &'a StepInput,
    /// Rows that hold the queries.
    pub source: &'a [f32],
    pub query: Blocks,
    pub groups: HeadGroups,
    /// Factor of the scores before softmax.
    pub scale: f32,
    pub cache: &'a KeyValueCache,
    pub layer: usize,
}

/// Queries of one sequence that read the same cached head: pair `p` is row `p / heads.len()` and query head
/// `heads.start + p % heads.len()`.
pub(super) struct Piece<'a> {
    pub view: View<'a>,
    pub cached_head: usize,
    pub heads: Range<usize>,
    pub pairs: Range<usize>,
}

/// One sequence's rows and what they see.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub first_row: usize,
    pub start: usize,
    pub pages: &'a [u32],
    tree: Option<(&'a [u64], usize, usize)>,
}

impl<'a> View<'a> {
    fn new(step: &'a StepInput, segment: &Segment) -> Self {
        let tree = segment.tree.as_ref().map(|tree| {
            let words = TreeMask::row_words(segment.start + segment.rows - tree.committed);
            (&step.mask[tree.words.clone()], words, tree.committed)
        });
        Self { first_row: segment.first_row, start: segment.start, pages: &step.pages[segment.pages.clone()], tree }
    }

    /// Positions below this hold everything that row `index` of the sequence sees.
    pub(super) fn span(&self, index: usize) -> usize {
        let Some((words, row_words, committed)) = self.tree else { return self.start + index + 1 };
        let row = &words[index * row_words..(index + 1) * row_words];
        let highest = row.iter().rposition(|word| *word != 0);
        committed + highest.map_or(0, |word| word * 64 + 64 - row[word].leading_zeros() as usize)
    }

    /// Row `index` sees `position`, which is below its span.
    pub(super) fn sees(&self, index: usize, position: usize) -> bool {
        let Some((words, row_words, committed)) = self.tree else { return true };
        position.checked_sub(committed).is_none_or(|bit| words[index * row_words + bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// All rows see all positions below this.
    pub(super) fn seen_by_all(&self) -> usize {
        self.tree.map_or(usize::MAX, |(_, _, committed)| committed)
    }
}

impl Compute {
    /// Softmax attention: `output[rows, query heads * head dimension]`.
    ///
    /// # Panics
    /// If the step names rows, pages or heads that are not there.
    pub fn attend(&self, attention: &Attention<'_>, output: &mut [f32]) {
        let width = attention.query.count * attention.query.width;
        let shared = Output::new(output, output.len() / width, width);
        let small = products(attention) < WORTH_SHARING;
        let pairs: usize = attention.step.segments.iter().map(|segment| segment.rows * attention.query.count).sum();
        let most = if small { usize::MAX } else { (pairs / (4 * self.pool.threads())).clamp(1, LARGEST_PIECE) };
        let pieces = pieces(attention, most);
        let run = |index: usize| {
            let piece = &pieces[index];
            MEMORY.with_borrow_mut(|memory| match attention.cache.element() {
                CacheElement::F32 => self.isa.run(PieceWork::<f32>::new(attention, piece, shared, memory)),
                CacheElement::F16 => self.isa.run(PieceWork::<F16>::new(attention, piece, shared, memory)),
            });
        };
        if small { (0..pieces.len()).for_each(run) } else { self.pool.run(pieces.len(), run) }
    }
}

/// Multiplications of a call.
fn products(attention: &Attention<'_>) -> usize {
    let span = |segment: &Segment| segment.rows * (segment.start + segment.rows / 2 + 1);
    let spans: usize = attention.step.segments.iter().map(span).sum();
    spans * attention.query.count * attention.query.width * 2
}

/// Cuts a call into pieces of up to `most` queries.
fn pieces<'a>(attention: &Attention<'a>, most: usize) -> Vec<Piece<'a>> {
    let Attention { step, query, groups, .. } = *attention;
    let mut pieces = Vec::new();
    for segment in &step.segments {
        let view = View::new(step, segment);
        let mut first = 0;
        while first < query.count {
            let cached_head = (first + groups.offset) / groups.group;
            let end = ((cached_head + 1) * groups.group - groups.offset).min(query.count);
            let count = segment.rows * (end - first);
            let mut from = 0;
            while from < count {
                let to = from.saturating_add(most).min(count);
                pieces.push(Piece { view, cached_head, heads: first..end, pairs: from..to });
                from = to;
            }
            first = end;
        }
    }
    pieces
}
