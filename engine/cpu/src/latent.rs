//! Multi-head latent attention: the up-projection is applied to queries and results, so that scores and sums are over
//! the cached latents themselves.

use engine::backend::{BackendError, Blocks, LatentUpParts};

use crate::cache::LatentCache;
use crate::elementwise::softmax;
use crate::matrix::{Matrix, dot};
use crate::step::{RowView, Step};

/// Per head: `nope` rows that make keys and `value` rows that make values, each over the latent.
pub struct LatentUp {
    /// `[heads * (nope + value), rank]`.
    weights: Vec<f32>,
    rank: usize,
    nope: usize,
    value: usize,
}

/// What one latent attention call reads.
pub struct Problem<'a> {
    pub step: &'a Step,
    pub source: &'a [f32],
    pub query: Blocks,
    pub up: &'a LatentUp,
    pub scale: f32,
    pub cache: &'a LatentCache,
    pub layer: usize,
}

/// Reused between calls.
#[derive(Default)]
pub struct Scratch {
    scores: Vec<f32>,
    /// The query over the latent, then the weighted sum of latents.
    latent: Vec<f32>,
}

impl LatentUp {
    pub fn load(parts: &LatentUpParts<'_>) -> Result<Self, BackendError> {
        let matrix = Matrix::load(std::slice::from_ref(&parts.part), None)?;
        let (nope, value) = (parts.nope_dimension, parts.value_dimension);
        assert_eq!(matrix.rows, parts.heads * (nope + value), "rows for keys and values of every head");
        Ok(Self { weights: matrix.values(), rank: matrix.columns, nope, value })
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.rank..(row + 1) * self.rank]
    }
}

/// `output` is `[rows, heads * value]`.
pub fn attend(problem: &Problem<'_>, scratch: &mut Scratch, output: &mut [f32]) {
    let (query, value) = (problem.query, problem.up.value);
    for segment in &problem.step.input.segments {
        for view in problem.step.views(segment) {
            for head in 0..query.count {
                let from = view.row * query.row + query.offset + head * query.stride;
                let to = (view.row * query.count + head) * value;
                let source = &problem.source[from..from + query.width];
                attend_row(problem, view, source, head, scratch, &mut output[to..to + value]);
            }
        }
    }
}

fn attend_row(
    problem: &Problem<'_>,
    view: RowView<'_>,
    query: &[f32],
    head: usize,
    scratch: &mut Scratch,
    output: &mut [f32],
) {
    let (up, Scratch { scores, latent }) = (problem.up, scratch);
    let rank = up.rank;
    let (plain, rotated) = query.split_at(up.nope);
    let first = head * (up.nope + up.value);
    let cached = |position| problem.cache.row(problem.layer, view.pages, position);
    latent.clear();
    latent.resize(rank, 0.0);
    for (row, factor) in plain.iter().enumerate() {
        latent.iter_mut().zip(up.row(first + row)).for_each(|(sum, weight)| *sum += factor * weight);
    }
    let score = |position: usize| {
        let (key, turned) = cached(position).split_at(rank);
        problem.scale * (dot(latent, key) + dot(rotated, turned))
    };
    scores.clear();
    // A row sees at least itself, so the largest score is finite.
    scores.extend((0..view.span()).map(|place| if view.sees(place) { score(place) } else { f32::NEG_INFINITY }));
    softmax(scores);
    latent.fill(0.0);
    for (position, weight) in scores.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
        latent.iter_mut().zip(cached(position)).for_each(|(sum, value)| *sum += weight * value);
    }
    for (row, value) in output.iter_mut().enumerate() {
        *value = dot(latent, up.row(first + up.nope + row));
    }
}
