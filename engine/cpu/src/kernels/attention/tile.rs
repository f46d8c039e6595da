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
    memory: &'a mut Memory,
    element: PhantomData<E>,
}

/// What a thread works in; as large as its longest sequence has needed.
#[derive(Default)]
pub(super) struct Memory {
    /// `[blocks, queries, 16 positions]`: scores, then weights.
    scores: Vec<[f32; LANES]>,
    /// `[dimension, queries]`.
    queries: Vec<f32>,
}

/// Queries that are computed together.
struct Tile<const QUERIES: usize> {
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
    pub(super) fn new(
        attention: &'a Attention<'a>,
        piece: &'a Piece<'a>,
        output: Output,
        memory: &'a mut Memory,
    ) -> Self {
        Self { attention, piece, output, memory, element: PhantomData }
    }

    /// Row of the sequence and query head of a pair.
    fn pair(&self, pair: usize) -> (usize, usize) {
        let heads = self.piece.heads.len();
        (pair / heads, self.piece.heads.start + pair % heads)
    }

    /// Interleaves the queries of pairs `first..first + QUERIES` and finds what they see.
    fn tile<const QUERIES: usize>(&mut self, first: usize) -> Tile<QUERIES> {
        let Attention { source, query, .. } = *self.attention;
        let indices = std::array::from_fn(|at| self.pair(first + at).0);
        self.memory.queries.resize(QUERIES * query.width, 0.0);
        for at in 0..QUERIES {
            let (index, head) = self.pair(first + at);
            let start = (self.piece.view.first_row + index) * query.row + query.offset + head * query.stride;
            let places = self.memory.queries.as_chunks_mut::<QUERIES>().0;
            for (place, value) in places.iter_mut().zip(&source[start..start + query.width]) {
                place[at] = *value;
            }
        }
        let spans: [usize; QUERIES] = std::array::from_fn(|at| self.piece.view.span(indices[at]));
        let longest = spans.iter().copied().max().unwrap_or(0);
        let (size, page_blocks) = (self.attention.cache.page_size(), self.attention.cache.page_blocks());
        let blocks = longest / size * page_blocks + (longest % size).div_ceil(LANES);
        Tile { indices, spans, blocks }
    }

    #[inline(always)]
    fn place(&self, index: usize) -> BlockPlace {
        let (size, page_blocks) = (self.attention.cache.page_size(), self.attention.cache.page_blocks());
        let (page, block) = (index / page_blocks, index % page_blocks);
        let position = page * size + block * LANES;
        let count = (size - block * LANES).min(LANES);
        BlockPlace { page: self.piece.view.pages[page] as usize, block, position, count }
    }

    /// A block's keys: a vector of 16 positions per dimension.
    #[inline(always)]
    fn keys(&self, place: &BlockPlace) -> &'a [[E::Stored; LANES]] {
        let Attention { cache, layer, .. } = *self.attention;
        cache.keys::<E>(layer, place.page, self.piece.cached_head, place.block)
    }

    /// A block's values: the vectors of each position, one position after the other.
    #[inline(always)]
    fn values(&self, place: &BlockPlace) -> &'a [[E::Stored; LANES]] {
        let Attention { cache, layer, .. } = *self.attention;
        cache.values::<E>(layer, place.page, self.piece.cached_head, place.block)
    }

    /// Scores of one block, lane by lane; what a query does not see becomes minus infinity.
    #[inline(always)]
    fn block_scores<S: Simd, const QUERIES: usize>(
        &self,
        s: S,
        tile: &Tile<QUERIES>,
        place: &BlockPlace,
    ) -> [[f32; LANES]; QUERIES] {
        let keys = self.keys(place);
        let mut sums = [[s.splat(0.0); 2]; QUERIES];
        let queries = self.memory.queries.as_chunks::<QUERIES>().0;
        let (pairs, last) = keys.as_chunks::<2>();
        let (query_pairs, last_query) = queries.as_chunks::<2>();
        for ([even, odd], [even_query, odd_query]) in pairs.iter().zip(query_pairs) {
            let (even, odd) = (E::load(s, even), E::load(s, odd));
            for at in 0..QUERIES {
                sums[at][0] = s.fma(even, s.splat(even_query[at]), sums[at][0]);
                sums[at][1] = s.fma(odd, s.splat(odd_query[at]), sums[at][1]);
            }
        }
        for (key, query) in last.iter().zip(last_query) {
            let key = E::load(s, key);
            for (sums, query) in sums.iter_mut().zip(query) {
                sums[0] = s.fma(key, s.splat(*query), sums[0]);
            }
        }
        let mut lanes = [[0.0; LANES]; QUERIES];
        for at in 0..QUERIES {
            s.store(s.mul(s.add(sums[at][0], sums[at][1]), s.splat(self.attention.scale)), &mut lanes[at]);
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
        self.memory.scores.resize(QUERIES * tile.blocks, [0.0; LANES]);
        for index in 0..tile.blocks {
            if index + 1 < tile.blocks {
                prefetch(s, self.keys(&self.place(index + 1)));
            }
            let lanes = self.block_scores(s, &tile, &self.place(index));
            self.memory.scores[index * QUERIES..(index + 1) * QUERIES].copy_from_slice(&lanes);
        }
        let sums = softmax::<S, QUERIES>(s, self.memory.scores.as_chunks_mut().0);
        let vectors = self.attention.cache.padded_dimension() / LANES;
        let mut vector = 0;
        while vector < vectors {
            vector += if const { fits::<S>(4 * QUERIES) } && vectors - vector >= 4 {
                self.sum::<S, QUERIES, 4>(s, &tile, first, vector, sums)
            } else if const { fits::<S>(2 * QUERIES) } && vectors - vector >= 2 {
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
        tile: &Tile<QUERIES>,
        first: usize,
        vector: usize,
        sums: [f32; QUERIES],
    ) -> usize {
        let Attention { cache, query, .. } = *self.attention;
        let per_position = cache.padded_dimension() / LANES;
        let longest = tile.spans.iter().copied().max().unwrap_or(0);
        let mut totals = [[s.splat(0.0); VECTORS]; QUERIES];
        let weights = self.memory.scores.as_chunks::<QUERIES>().0;
        for (index, weights) in weights.iter().enumerate() {
            let place = self.place(index);
            if index + 1 < tile.blocks {
                prefetch(s, self.values(&self.place(index + 1)));
            }
            let values = self.values(&place);
            // Slots after the longest span may hold anything.
            let count = place.count.min(longest - place.position);
            for (lane, stored) in (0..LANES).zip(values.chunks_exact(per_position)).take(count) {
                let stored: &[_; VECTORS] = stored[vector..].first_chunk().expect("as many vectors are left");
                let mut values = [s.splat(0.0); VECTORS];
                for (value, stored) in values.iter_mut().zip(stored) {
                    *value = E::load(s, stored);
                }
                for (totals, weights) in totals.iter_mut().zip(weights) {
                    let weight = s.splat(weights[lane]);
                    for (total, value) in totals.iter_mut().zip(&values) {
                        *total = s.fma(weight, *value, *total);
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
            // Scores take two sums for each query.
            pair += if const { fits::<S>(16) } && left >= 8 {
                self.run_tile::<S, 8>(s, pair)
            } else if const { fits::<S>(8) } && left >= 4 {
                self.run_tile::<S, 4>(s, pair)
            } else if const { fits::<S>(4) } && left >= 2 {
                self.run_tile::<S, 2>(s, pair)
            } else {
                self.run_tile::<S, 1>(s, pair)
            };
        }
    }
}

/// Asks for a block before it is needed: pages lie anywhere, so the processor does not see by itself what comes next.
#[inline(always)]
fn prefetch<S: Simd, T>(s: S, vectors: &[T]) {
    for vector in vectors {
        s.prefetch(vector);
    }
}

/// Scores to weights `e^(score - largest)`; returns each query's sum, which is not a number if a score is not.
#[inline(always)]
fn softmax<S: Simd, const QUERIES: usize>(s: S, scores: &mut [[[f32; LANES]; QUERIES]]) -> [f32; QUERIES] {
    let mut sums = [0.0; QUERIES];
    for (at, sum) in sums.iter_mut().enumerate() {
        let mut largest = s.splat(f32::NEG_INFINITY);
        for block in &*scores {
            largest = s.max(largest, s.load(&block[at]));
        }
        let largest = s.splat(s.largest(largest));
        let mut total = s.splat(0.0);
        for block in &mut *scores {
            let weight = s.exp(s.sub(s.load(&block[at]), largest));
            s.store(weight, &mut block[at]);
            total = s.add(total, weight);
        }
        *sum = s.sum(total);
    }
    sums
}

/// So many vectors of sums fit the registers.
const fn fits<S: Simd>(sums: usize) -> bool {
    sums <= S::SUMS
}
