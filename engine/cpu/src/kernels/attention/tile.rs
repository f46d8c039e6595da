//! A few queries against their cached head: scores, softmax, weighted sum.

use std::marker::PhantomData;

use super::{Attention, Piece, cache::Element};
use crate::kernels::{
    isa::Work,
    product::Output,
    simd::{LANES, Simd},
};

/// One piece of an attention call. Runs in one thread: pieces of a call write different columns or rows, and the
/// output stays borrowed until all are done.
pub(super) struct PieceWork<'a, E> {
    attention: &'a Attention<'a>,
    piece: &'a Piece<'a>,
    output: Output,
    /// Scores of the queries of a tile, each over its blocks of 16 positions.
    scores: &'a mut Vec<[f32; LANES]>,
    element: PhantomData<E>,
}

/// Queries that are computed together.
struct Tile<'a, const QUERIES: usize> {
    queries: [&'a [f32]; QUERIES],
    /// Row of the sequence of each query.
    indices: [usize; QUERIES],
    spans: [usize; QUERIES],
    /// Blocks of 16 positions that the longest span touches.
    blocks: usize,
}

/// A block of 16 positions and what of it is used.
struct BlockPlace {
    page: usize,
    block: usize,
    position: usize,
    count: usize,
}

impl<'a, E: Element> PieceWork<'a, E> {
    /// `scores` is memory to work in.
    pub(super) fn new(
        attention: &'a Attention<'a>,
        piece: &'a Piece<'a>,
        output: Output,
        scores: &'a mut Vec<[f32; LANES]>,
    ) -> Self {
        Self { attention, piece, output, scores, element: PhantomData }
    }

    /// Row of the sequence and query head of a pair.
    fn pair(&self, pair: usize) -> (usize, usize) {
        let heads = self.piece.heads.len();
        (pair / heads, self.piece.heads.start + pair % heads)
    }

    fn tile<const QUERIES: usize>(&self, first: usize) -> Tile<'a, QUERIES> {
        let Attention { source, query, .. } = *self.attention;
        let indices = std::array::from_fn(|at| self.pair(first + at).0);
        let queries = std::array::from_fn(|at| {
            let (index, head) = self.pair(first + at);
            let start = (self.piece.view.first_row + index) * query.row + query.offset + head * query.stride;
            &source[start..start + query.width]
        });
        let spans: [usize; QUERIES] = std::array::from_fn(|at| self.piece.view.span(indices[at]));
        let longest = spans.iter().copied().max().unwrap_or(0);
        let (size, page_blocks) = (self.attention.cache.page_size(), self.attention.cache.page_blocks());
        let blocks = longest / size * page_blocks + (longest % size).div_ceil(LANES);
        Tile { queries, indices, spans, blocks }
    }

    #[inline(always)]
    fn place(&self, index: usize) -> BlockPlace {
        let (size, page_blocks) = (self.attention.cache.page_size(), self.attention.cache.page_blocks());
        let (page, block) = (index / page_blocks, index % page_blocks);
        let position = page * size + block * LANES;
        let count = (size - block * LANES).min(LANES);
        BlockPlace { page: self.piece.view.pages[page] as usize, block, position, count }
    }

    /// Scores of one block, lane by lane; what a query does not see becomes minus infinity.
    #[inline(always)]
    fn block_scores<S: Simd, const QUERIES: usize>(
        &self,
        s: S,
        tile: &Tile<'_, QUERIES>,
        place: &BlockPlace,
    ) -> [[f32; LANES]; QUERIES] {
        let Attention { cache, layer, scale, .. } = *self.attention;
        let keys = cache.keys::<E>(layer, place.page, self.piece.cached_head, place.block);
        let mut sums = [[s.splat(0.0); 2]; QUERIES];
        let (pairs, last) = keys.as_chunks::<2>();
        for (index, [even, odd]) in pairs.iter().enumerate() {
            let (even, odd) = (E::load(s, even), E::load(s, odd));
            for at in 0..QUERIES {
                sums[at][0] = s.fma(even, s.splat(tile.queries[at][2 * index]), sums[at][0]);
                sums[at][1] = s.fma(odd, s.splat(tile.queries[at][2 * index + 1]), sums[at][1]);
            }
        }
        for key in last {
            let key = E::load(s, key);
            for at in 0..QUERIES {
                sums[at][0] = s.fma(key, s.splat(tile.queries[at][2 * pairs.len()]), sums[at][0]);
            }
        }
        let mut lanes = [[0.0; LANES]; QUERIES];
        for at in 0..QUERIES {
            s.store(s.mul(s.add(sums[at][0], sums[at][1]), s.splat(scale)), &mut lanes[at]);
            self.hide(tile.indices[at], tile.spans[at], place, &mut lanes[at]);
        }
        lanes
    }

    #[inline(always)]
    fn hide(&self, index: usize, span: usize, place: &BlockPlace, scores: &mut [f32; LANES]) {
        let end = place.position + place.count;
        if place.count == LANES && end <= span && end <= self.piece.view.seen_by_all() {
            return;
        }
        for (lane, score) in scores.iter_mut().enumerate() {
            let position = place.position + lane;
            if lane >= place.count || position >= span || !self.piece.view.sees(index, position) {
                *score = f32::NEG_INFINITY;
            }
        }
    }

    #[inline(always)]
    fn run_tile<S: Simd, const QUERIES: usize>(&mut self, s: S, first: usize) -> usize {
        let tile = self.tile::<QUERIES>(first);
        self.scores.resize(self.scores.len().max(QUERIES * tile.blocks), [0.0; LANES]);
        for index in 0..tile.blocks {
            let lanes = self.block_scores(s, &tile, &self.place(index));
            for (at, lanes) in lanes.iter().enumerate() {
                self.scores[at * tile.blocks + index] = *lanes;
            }
        }
        let mut sums = [0.0; QUERIES];
        for (sum, scores) in sums.iter_mut().zip(self.scores.chunks_exact_mut(tile.blocks)) {
            *sum = softmax(s, scores);
        }
        let vectors = self.attention.cache.padded_dimension() / LANES;
        let mut vector = 0;
        while vector < vectors {
            vector += if const { fits::<S>(4) } && vectors - vector >= 4 {
                self.sum::<S, QUERIES, 4>(s, &tile, first, vector, sums)
            } else if const { fits::<S>(2) } && vectors - vector >= 2 {
                self.sum::<S, QUERIES, 2>(s, &tile, first, vector, sums)
            } else {
                self.sum::<S, QUERIES, 1>(s, &tile, first, vector, sums)
            };
        }
        QUERIES
    }

    /// `VECTORS` vectors of the results, from vector `vector` of the head on.
    #[inline(always)]
    fn sum<S: Simd, const QUERIES: usize, const VECTORS: usize>(
        &self,
        s: S,
        tile: &Tile<'_, QUERIES>,
        first: usize,
        vector: usize,
        sums: [f32; QUERIES],
    ) -> usize {
        let Attention { cache, layer, query, .. } = *self.attention;
        let per_position = cache.padded_dimension() / LANES;
        let longest = tile.spans.iter().copied().max().unwrap_or(0);
        let mut totals = [[s.splat(0.0); VECTORS]; QUERIES];
        for index in 0..tile.blocks {
            let place = self.place(index);
            let values = cache.values::<E>(layer, place.page, self.piece.cached_head, place.block);
            // Slots after the longest span may hold anything.
            let count = place.count.min(longest - place.position);
            for (lane, values) in values.chunks_exact(per_position).take(count).enumerate() {
                let values: &[_; VECTORS] = values[vector..].first_chunk().expect("as many vectors are left");
                for at in 0..QUERIES {
                    let weight = s.splat(self.scores[at * tile.blocks + index][lane]);
                    for (total, value) in totals[at].iter_mut().zip(values) {
                        *total = s.fma(weight, E::load(s, value), *total);
                    }
                }
            }
        }
        for at in 0..QUERIES {
            let (index, head) = self.pair(first + at);
            let inverse = s.splat(1.0 / sums[at]);
            for (offset, total) in totals[at].iter().enumerate() {
                let mut lanes = [0.0; LANES];
                s.store(s.mul(*total, inverse), &mut lanes);
                let column = (vector + offset) * LANES;
                let count = (query.width - column).min(LANES);
                // SAFETY: this type's contract: pieces write different rows or heads, and the output is borrowed.
                unsafe {
                    self.output.write(self.piece.view.first_row + index, head * query.width + column, &lanes, count);
                }
            }
        }
        VECTORS
    }
}

impl<E: Element> Work for PieceWork<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut pair = self.piece.pairs.start;
        while pair < self.piece.pairs.end {
            let left = self.piece.pairs.end - pair;
            pair += if const { fits::<S>(4) } && left >= 4 {
                self.run_tile::<S, 4>(s, pair)
            } else if const { fits::<S>(2) } && left >= 2 {
                self.run_tile::<S, 2>(s, pair)
            } else {
                self.run_tile::<S, 1>(s, pair)
            };
        }
    }
}

/// Scores to weights `e^(score - largest)`; returns their sum, which is not a number if a score is
/// not.
#[inline(always)]
fn softmax<S: Simd>(s: S, scores: &mut [[f32; LANES]]) -> f32 {
    let mut largest = s.splat(f32::NEG_INFINITY);
    for block in &*scores {
        largest = s.max(largest, s.load(block));
    }
    let largest = s.splat(s.largest(largest));
    let mut sum = s.splat(0.0);
    for block in scores {
        let weight = s.exp(s.sub(s.load(block), largest));
        s.store(weight, block);
        sum = s.add(sum, weight);
    }
    s.sum(sum)
}

/// Queries or vectors of which so many fit the registers, each with its own sums.
const fn fits<S: Simd>(count: usize) -> bool {
    2 * count <= S::ROWS
}
